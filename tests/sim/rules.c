/*
 * rules: what keeps data safe, each of which can be switched off alone.  A rule
 * whose removal no seed notices is not tested.
 */
#include "tests/sim/sim.h"

#include "lsom/lsom.h"

#include <strings.h>

#define DOM(n) (1ull << (n))

const struct sim_rule sim_rules[RULES] = {
	[RULE_R1] = { "R1", "a component refuses an older epoch", MODE_NODE, 0,
		      DOM(1) },
	[RULE_R6] = { "R6", "a component refuses another membership", MODE_NODE,
		      0, DOM(6) },
	[RULE_R10] = { "R10", "stable_lsn is the contiguous low-water mark",
		       MODE_NODE, 0, DOM(10) },
	[RULE_R11] = { "R11", "holes keep their lsn until nobody needs it",
		       MODE_COMP, LSOM_OFF_HOLES, 0 },
	[RULE_R13] = { "R13", "another incarnation of a component is refused",
		       MODE_NODE, 0, DOM(13) },
	[RULE_R14] = { "R14", "a disk that went back in time is not served",
		       MODE_NODE, 0, DOM(14) },
	[RULE_R16] = { "R16", "a record names who takes part", MODE_NODE,
		       LSOM_OFF_PARTS, DOM(16) },
	[RULE_R17] = { "R17", "reads see decided data only",
		       MODE_COMP | MODE_NODE, LSOM_OFF_UNDECIDED, DOM(17) },
	[RULE_R26] = { "R26", "a repeated PREP is answered from what is there",
		       MODE_COMP, LSOM_OFF_DEDUPE, 0 },
	[RULE_R27] = { "R27", "replay ends at a torn tail",
		       MODE_COMP | MODE_NODE, LSOM_OFF_TAIL, 0 },
	[RULE_R28] = { "R28", "a failed log write stops the disk",
		       MODE_COMP | MODE_NODE, LSOM_OFF_FAIL_STOP, 0 },
	[RULE_R36] = { "R36", "the decided set travels with every message",
		       MODE_NODE, 0, DOM(36) },
	[RULE_R41] = { "R41", "a late PREP is refused", MODE_COMP,
		       LSOM_OFF_BARRED, 0 },
	[RULE_R42] = { "R42", "a component that is not ACTIVE waits for ATTACH",
		       MODE_NODE, 0, DOM(42) },
	[RULE_R44] = { "R44", "atomic over groups: all of them or none",
		       MODE_NODE, 0, DOM(44) },
	[RULE_R45] = { "R45", "no lsn without credit for its space", MODE_NODE,
		       0, DOM(45) },
	[RULE_DURABLE_PREFIX] = { "durable_prefix",
				  "a lost batch in mid-log is no torn tail",
				  MODE_COMP, LSOM_OFF_DURABLE_PREFIX, 0 },
	[RULE_GENERATION] = { "generation", "a new log generation at each open",
			      MODE_COMP | MODE_NODE, LSOM_OFF_GENERATION, 0 },
	[RULE_CARRY] = { "carry", "the cleaner carries metadata forward",
			 MODE_COMP, LSOM_OFF_CARRY, 0 },
	[RULE_REUSE] = { "reuse", "a segment is reused only after a flush",
			 MODE_COMP | MODE_NODE, LSOM_OFF_REUSE, 0 },
	[RULE_MOVE] = { "move", "a move applies only if the index points there",
			MODE_COMP | MODE_NODE, LSOM_OFF_MOVE, 0 },
	[RULE_UNDO] = { "undo", "short lives do not use a full disk up",
			MODE_COMP, LSOM_OFF_UNDO, 0 },
};

int sim_rule_find(const char *name)
{
	for (int i = 0; i < RULES; i++)
		if (strcasecmp(sim_rules[i].name, name) == 0)
			return i;
	return -1;
}

bool sim_rule(const struct sim *sim, unsigned rule)
{
	return (sim->config.rules_off >> rule & 1) == 0;
}

uint64_t sim_rules_lsom(const struct sim *sim)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < RULES; i++)
		if (!sim_rule(sim, i))
			mask |= sim_rules[i].lsom;
	return mask;
}

uint64_t sim_rules_dom(const struct sim *sim)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < RULES; i++)
		if (!sim_rule(sim, i))
			mask |= sim_rules[i].dom;
	return mask;
}
