/*
 * helpers.c
 *		Functions that the benchmarks put into their private server.  They are
 *		no part of keyright.
 *
 * bench_seat_id(slot)
 *		the seat id that the benchmarks fill a slot with, so that a client can
 *		beat any seat without having asked for it first: pgbench knows no texts
 *
 * bench_seat_ids(first, count)
 *		an array of them, of consecutive slots
 *
 * bench_sign(size)
 *		an Ed25519 signature, by libsodium, of a message of that many bytes
 */
#include "postgres.h"

#include <sodium.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/uuid.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_seat_id);
PG_FUNCTION_INFO_V1(bench_seat_ids);
PG_FUNCTION_INFO_V1(bench_sign);

#define MESSAGE_MAX		4096

static pg_uuid_t *
make_seat_id(int32 slot)
{
	pg_uuid_t  *id = palloc0(sizeof(pg_uuid_t));

	for (int i = 0; i < 4; i++)
		id->data[i] = (slot >> (8 * (3 - i))) & 0xff;
	id->data[6] = 0x80;			/* version 8 */
	id->data[8] = 0x80;			/* the variant of RFC 9562 */
	return id;
}

Datum
bench_seat_id(PG_FUNCTION_ARGS)
{
	PG_RETURN_UUID_P(make_seat_id(PG_GETARG_INT32(0)));
}

Datum
bench_seat_ids(PG_FUNCTION_ARGS)
{
	int32		first = PG_GETARG_INT32(0);
	int32		count = PG_GETARG_INT32(1);
	Datum	   *ids = palloc(count * sizeof(Datum));

	for (int i = 0; i < count; i++)
		ids[i] = UUIDPGetDatum(make_seat_id(first + i));
	PG_RETURN_ARRAYTYPE_P(construct_array(ids, count, UUIDOID, UUID_LEN,
										  false, TYPALIGN_CHAR));
}

Datum
bench_sign(PG_FUNCTION_ARGS)
{
	static unsigned char secret[crypto_sign_SECRETKEYBYTES];
	static unsigned char message[MESSAGE_MAX];
	static bool ready = false;
	int32		size = PG_GETARG_INT32(0);
	bytea	   *signature = palloc(VARHDRSZ + crypto_sign_BYTES);

	if (size < 1 || size > MESSAGE_MAX)
		elog(ERROR, "size is out of range");
	if (!ready)
	{
		unsigned char public[crypto_sign_PUBLICKEYBYTES];

		if (sodium_init() < 0)
			elog(ERROR, "libsodium could not be initialized");
		crypto_sign_keypair(public, secret);
		ready = true;
	}
	message[0]++;
	crypto_sign_detached((unsigned char *) VARDATA(signature), NULL, message,
						 size, secret);
	SET_VARSIZE(signature, VARHDRSZ + crypto_sign_BYTES);
	PG_RETURN_BYTEA_P(signature);
}
