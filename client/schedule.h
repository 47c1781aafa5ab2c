/*
 * schedule.h
 *		When the next question is due.  Pure; what is random comes from the
 *		keeper's own generator.
 */
#ifndef KEYRIGHT_SCHEDULE_H
#define KEYRIGHT_SCHEDULE_H

#include "internal.h"

/* The next beat of a lease that was asked for at "sent". */
extern int64_t beat_due(Keeper *keeper, bool first, const Clocks *sent);

/* The time limit of a beat, 0: there is no time for one more. */
extern int64_t beat_limit(const Keeper *keeper, const Clocks *now);

/*
 * Delays after a failure, keeper->failed of them in a row.  "soon": when the
 * server is there, and many failures at once are not to be expected.
 */
extern int64_t beat_retry_delay(Keeper *keeper, const Clocks *now);
extern int64_t beat_soon_delay(Keeper *keeper, const Clocks *now);
extern int64_t silence_delay(Keeper *keeper);
extern int64_t refused_delay(Keeper *keeper);
extern int64_t release_delay(Keeper *keeper);

/* After "all seats are taken"; retry_after_ms: the server's word, -1: none. */
extern int64_t no_seats_delay(Keeper *keeper, int64_t retry_after_ms);

#endif							/* KEYRIGHT_SCHEDULE_H */
