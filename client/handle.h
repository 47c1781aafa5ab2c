/*
 * handle.h
 *		What keyright_open() and the options share.
 */
#ifndef KEYRIGHT_HANDLE_H
#define KEYRIGHT_HANDLE_H

#include "internal.h"

/* A struct of this library's size, from one of the caller's. */
extern bool options_copy(KeyrightOptions *to, const KeyrightOptions *from,
						 KeyrightError *error);

/* All but the transport and the state file.  False: *error says why. */
extern bool options_read(Keyright *seat, const KeyrightOptions *options,
						 KeyrightError *error);

#endif							/* KEYRIGHT_HANDLE_H */
