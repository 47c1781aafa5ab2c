/*
 * pq_message.h
 *		libpq's messages as one readable line; the command uses it, too.
 */
#ifndef KEYRIGHT_PQ_MESSAGE_H
#define KEYRIGHT_PQ_MESSAGE_H

#include <stddef.h>

/*
 * Appends to the text in "to" what a connection's error message says, cut
 * where a character begins when there is not enough room.  What stands there
 * already is not said again.  sqlstate: the last one in it, or empty.
 */
extern void pq_message_add(char *to, size_t room, const char *message,
						   char sqlstate[6]);

#endif							/* KEYRIGHT_PQ_MESSAGE_H */
