/*
 * client_test.h
 *		What the unit tests of the client share.
 */
#ifndef CLIENT_TEST_H
#define CLIENT_TEST_H

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

extern void test_keeper(void);
extern void test_answers(void);
extern void test_schedule(void);
extern void test_walk(void);
extern void test_state_file(const char *folder);
extern void test_values(void);
extern void test_messages(void);

#endif							/* CLIENT_TEST_H */
