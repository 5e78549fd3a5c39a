/* What a read asks of the disk. */
#include "tests/unit/lsom_rig.h"

enum { BLOCKS = 32 };

/* The iovecs of each read in flight. */
static unsigned reads_look(const struct sim_env *sim, unsigned *iovs)
{
	unsigned reads = 0;

	for (size_t i = 0; i < sim->ios_count; i++)
		if (sim->ios[i]->op == WB_READ)
			iovs[reads++] = sim->ios[i]->iov_count;
	return reads;
}

/* All blocks of @comp.  Returns how many reads of the disk that took. */
static unsigned read_all(struct fixture *f, struct lsom_comp *comp,
			 struct call *c, unsigned *iovs)
{
	unsigned reads = 0;

	*c = (struct call){ .f = f };
	c->r.len = BLOCKS * LSOM_BLOCK;
	c->r.class = PAGE_FRONT;
	CHECK_EQ(lsom_read(comp, &c->r, read_done), 0);
	while (reads == 0) { /* all are sent in one turn */
		CHECK(sim_env_turn(&f->sim));
		reads = reads_look(&f->sim, iovs);
	}
	CHECK(sim_env_run(&f->sim, &c->done));
	CHECK_EQ(c->status, 0);
	return reads;
}

static void block_check(const struct call *c, unsigned block, uint64_t seed)
{
	uint8_t want[LSOM_BLOCK] = { 0 };

	if (seed != 0)
		fill(want, block, seed);
	CHECK_EQ(memcmp(want, c->r.sgl->pieces[block].page->data, LSOM_BLOCK),
		 0);
}

/* Neighbours on the disk land in neighbours in memory: one iovec. */
TEST(lsom_read, neighbours_are_one_iovec)
{
	struct fixture *f = fixture_open(1);
	struct lsom_comp *comp;
	unsigned iovs[BLOCKS];
	struct call c;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, BLOCKS, 1, 5), 0);
	CHECK_EQ(read_all(f, comp, &c, iovs), 1);
	CHECK_EQ(iovs[0], 1);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_check(&c, i, 5);
	sgl_put(c.r.sgl);
	/* Where another write lies between, and where nothing lies. */
	CHECK_EQ(put(f, comp, 10, 2, 2, 6), 0);
	CHECK_EQ(put(f, comp, 20, 5, 3, 0), 0);
	CHECK_EQ(read_all(f, comp, &c, iovs), 4);
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(iovs[i], 1);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_check(&c, i,
			    i >= 10 && i < 12	? 6
			    : i >= 20 && i < 25 ? 0
						: 5);
	sgl_put(c.r.sgl);
	lsom_comp_put(comp);
	fixture_close(f);
}
