/* snapshot: see snapshot.h. */
#include "tests/lib/snapshot.h"
#include "tests/lib/pattern.h"

#include <errno.h>
#include <stdlib.h>

#define SCAN_ITEMS 1024u

void snapshot_take_over(struct lsom_comp *comp)
{
	struct lsom_decided decided = {
		.stable_lsn = lsom_comp_meta(comp)->max_lsn,
		.g_all = lsom_comp_meta(comp)->g_all,
	};

	lsom_decided(comp, &decided);
}

/* ---- taking one ---- */

struct waiter {
	bool done;
	int status;
};

static void on_scan(struct lsom_scan *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

static int scan(struct memenv *me, struct lsom_comp *comp,
		struct lsom_scan *req)
{
	struct waiter w = { false, 0 };
	int rv;

	req->data = &w;
	rv = lsom_scan(comp, req, on_scan);
	if (rv == 0 && !memenv_run(me, &w.done))
		rv = -ETIMEDOUT;
	if (rv == 0)
		rv = w.status;
	return rv == 0 && req->next <= req->offset ? -EPROTO : rv;
}

static int versions_take(struct memenv *me, struct lsom_comp *comp,
			 struct snapshot *s)
{
	const struct lsom_comp_meta *m = lsom_comp_meta(comp);
	uint64_t at = 0;

	while (at < m->size_bytes) {
		struct lsom_scan req = { .offset = at,
					 .len = m->size_bytes - at,
					 .items_max = SCAN_ITEMS };
		int rv;

		if (s->room < s->count + SCAN_ITEMS) {
			s->room = s->count * 2 + SCAN_ITEMS;
			s->versions = realloc(s->versions,
					      s->room * sizeof(*s->versions));
			if (s->versions == NULL)
				abort();
		}
		req.items = s->versions + s->count;
		rv = scan(me, comp, &req);
		if (rv != 0)
			return rv;
		s->count += req.items_count;
		at = req.next;
	}
	return 0;
}

static void meta_note(struct lsom_comp *comp, void *arg)
{
	struct snapshot *s = arg;

	if (s->comps_count == SNAPSHOT_COMPS_MAX)
		abort(); /* no load makes so many */
	s->metas[s->comps_count++] = *lsom_comp_meta(comp);
}

static int by_cid(const void *a, const void *b)
{
	const struct lsom_comp_meta *x = a, *y = b;

	return memcmp(&x->cid, &y->cid, sizeof(x->cid));
}

int snapshot_take(struct memenv *me, struct lsom_disk *disk, struct snapshot *s)
{
	int rv = 0;

	memset(s, 0, sizeof(*s));
	lsom_comp_each(disk, meta_note, s);
	qsort(s->metas, s->comps_count, sizeof(s->metas[0]), by_cid);
	for (unsigned i = 0; i < s->comps_count && rv == 0; i++) {
		struct lsom_comp *comp = lsom_comp_get(disk, &s->metas[i].cid);

		snapshot_take_over(comp);
		rv = versions_take(me, comp, s);
		s->versions_at[i + 1] = s->count;
		lsom_comp_put(comp);
	}
	return rv;
}

void snapshot_fini(struct snapshot *s)
{
	free(s->versions);
	memset(s, 0, sizeof(*s));
}

/* ---- comparing two ---- */

static bool metas_equal(const struct lsom_comp_meta *a,
			const struct lsom_comp_meta *b)
{
	return uuid_equal(&a->cid, &b->cid) && uuid_equal(&a->oid, &b->oid) &&
	       a->cinc == b->cinc && a->size_bytes == b->size_bytes &&
	       a->promised_oepoch == b->promised_oepoch &&
	       a->member_csn == b->member_csn && a->csn_seen == b->csn_seen &&
	       a->state_seen == b->state_seen && a->damaged == b->damaged &&
	       a->max_lsn == b->max_lsn;
}

static bool versions_equal(const struct lsom_version *a,
			   const struct lsom_version *b)
{
	return a->offset == b->offset && a->lsn == b->lsn &&
	       a->member_csn == b->member_csn && a->crc == b->crc &&
	       a->hole == b->hole;
}

static void version_print(char *out, size_t len, const struct lsom_version *v,
			  const struct lsom_version *end)
{
	if (v == end)
		snprintf(out, len, "nothing");
	else
		snprintf(out, len, "block %llu version (%llu, %llu) %s %08x",
			 (unsigned long long)v->offset / BLOCK,
			 (unsigned long long)v->member_csn,
			 (unsigned long long)v->lsn, v->hole ? "hole" : "data",
			 v->crc);
}

/* Component @i of both. */
static bool comps_equal(unsigned i, const struct snapshot *a,
			const struct snapshot *b, uint64_t *idle_holes,
			char *why, size_t why_len)
{
	const struct lsom_version *v = a->versions + a->versions_at[i];
	const struct lsom_version *v_end = a->versions + a->versions_at[i + 1];
	const struct lsom_version *w = b->versions + b->versions_at[i];
	const struct lsom_version *w_end = b->versions + b->versions_at[i + 1];
	char v_text[80], w_text[80];

	while (v < v_end || w < w_end) {
		uint64_t v_at = v < v_end ? v->offset : UINT64_MAX;
		uint64_t w_at = w < w_end ? w->offset : UINT64_MAX;

		if (v_at == w_at && versions_equal(v, w)) {
			v++;
			w++;
		} else if (v_at < w_at && v->hole) {
			v++;
			++*idle_holes;
		} else if (w_at < v_at && w->hole) {
			w++;
			++*idle_holes;
		} else {
			version_print(v_text, sizeof(v_text), v, v_end);
			version_print(w_text, sizeof(w_text), w, w_end);
			snprintf(why, why_len,
				 "component %u: recorded %s, rebuilt %s", i,
				 v_text, w_text);
			return false;
		}
	}
	return true;
}

bool snapshot_equal(const struct snapshot *a, const struct snapshot *b,
		    uint64_t *idle_holes, char *why, size_t why_len)
{
	if (a->comps_count != b->comps_count) {
		snprintf(why, why_len, "%u components, rebuilt %u",
			 a->comps_count, b->comps_count);
		return false;
	}
	for (unsigned i = 0; i < a->comps_count; i++) {
		if (!metas_equal(&a->metas[i], &b->metas[i])) {
			snprintf(why, why_len,
				 "component %u has another state: max_lsn "
				 "%llu, rebuilt %llu",
				 i, (unsigned long long)a->metas[i].max_lsn,
				 (unsigned long long)b->metas[i].max_lsn);
			return false;
		}
		if (!comps_equal(i, a, b, idle_holes, why, why_len))
			return false;
	}
	return true;
}
