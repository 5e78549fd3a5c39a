#include "tests/sim/sim.h"
void node_run(struct sim *sim)
{
	comp_run(sim);
}
void fence_run(struct sim *sim)
{
	comp_run(sim);
}
