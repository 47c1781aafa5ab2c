/*
 * keeper.h
 *		What the two files of the state machine share.
 */
#ifndef KEYRIGHT_KEEPER_H
#define KEYRIGHT_KEEPER_H

#include "schedule.h"

/* ----- keeper.c ----- */

/* Goes to a state and puts a notice of it, if it is news. */
extern void keeper_enter(Keeper *keeper, KeyrightState state,
						 const KeyrightError *error, const Clocks *now);

/* Nobody may run by the lease from now on. */
extern void keeper_drop_lease(Keeper *keeper);

/* The lease is over by our clocks, or in doubt and not cleared up. */
extern void keeper_lapse(Keeper *keeper, KeyrightErrorKind kind,
						 const char *detail, const Clocks *now);

/* On to asking for a new lease, if that is wished. */
extern void keeper_regain(Keeper *keeper, int64_t due);

extern void keeper_finish_asking(Keeper *keeper, KeyrightState state,
								 const KeyrightError *error,
								 const Clocks *now);
extern void keeper_finish_returning(Keeper *keeper,
									const KeyrightError *error,
									const Clocks *now);

#endif							/* KEYRIGHT_KEEPER_H */
