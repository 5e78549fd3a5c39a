/*
 * The life of an owner: what waits for it is answered, whatever ends meanwhile.
 */
#include "tests/unit/dom_rig.h"

/* A collection is asked for when the room has been told to look at its end. */
TEST(dom_owner, closed_with_a_collection_asked_for)
{
	struct fixture *f = fixture_open();

	nap(f, 20 * MSEC);
	dom__kick(f->dom);
	dom__gc_kick(f->dom);
	fixture_close(f);
}
