/*
 * test_corpus.c
 *		The files of the corpus: the name of each begins with what has to come
 *		of it, up to the first dot.
 *
 * corpus/token holds tokens under the sample key (the status at SAMPLE_NOW),
 * corpus/signed payloads that get signed here, after a line with a header if
 * there is one (the status again), corpus/keyset JWK Sets (the number of
 * usable keys, or "refused").
 */
#define _GNU_SOURCE

#include "test.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX			(2 * KEYSET_SOURCE_MAX)

typedef const char *(*Judge) (const char *data, size_t size);

static const char *
judge_token(const char *data, size_t size)
{
	LeaseClaims claims;

	return token_status_name(verify(data, size, SAMPLE_NOW, &claims));
}

static const char *
judge_signed(const char *data, size_t size)
{
	char		token[FORGED_SIZE];
	LeaseClaims claims;
	const char *line = memchr(data, '\n', size);
	const char *header = line != NULL ? data : sample_header();
	size_t		header_size = line != NULL ?
		(size_t) (line - data) : strlen(header);
	const char *payload = line != NULL ? line + 1 : data;

	size = forge(token, header, header_size, payload,
				 (size_t) (data + size - payload), sample_key());
	return token_status_name(verify(token, size, SAMPLE_NOW, &claims));
}

static const char *
judge_keyset(const char *data, size_t size)
{
	static char answer[16];
	KeySet		set;
	const char *problem;

	if (!keyset_read(&set, data, size, &problem))
		return "refused";
	snprintf(answer, sizeof(answer), "%d", set.count);
	return answer;
}

static void
run_file(const char *folder, const char *name, Judge judge)
{
	static char data[FILE_MAX];
	char		path[4096];
	FILE	   *file;
	size_t		size;
	const char *verdict;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "rb");
	if (file == NULL)
	{
		ok(false, "corpus: could not open \"%s\"", path);
		return;
	}
	size = fread(data, 1, sizeof(data), file);
	fclose(file);

	verdict = judge(data, size);
	ok(strncmp(name, verdict, strlen(verdict)) == 0 &&
	   name[strlen(verdict)] == '.', "corpus: %s is %s", name, verdict);
}

static int
visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void
run_folder(const char *corpus, const char *kind, Judge judge)
{
	char		folder[2048];
	struct dirent **entries;
	int			count;

	snprintf(folder, sizeof(folder), "%s/%s", corpus, kind);
	count = scandir(folder, &entries, visible, alphasort);
	ok(count > 0, "corpus: %d files in %s", count, kind);
	for (int i = 0; i < count; i++)
	{
		run_file(folder, entries[i]->d_name, judge);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

void
test_corpus(const char *corpus)
{
	run_folder(corpus, "token", judge_token);
	run_folder(corpus, "signed", judge_signed);
	run_folder(corpus, "keyset", judge_keyset);
}
