/* scsi_stats: commands by what they do, and answers by how they ended. */
#include "base/stats.h"
#include "iscsi/scsi_int.h"

#define COUNTER(var, what, text)                                               \
	static struct counter var = {                                          \
		.name = "basalt_scsi_" what "_total",                          \
		.help = text,                                                  \
	}

COUNTER(reads, "reads", "commands that return the medium's data");
COUNTER(writes, "writes", "commands that write data");
COUNTER(unmaps, "unmaps", "UNMAP, WRITE SAME and SANITIZE");
COUNTER(others, "others", "all other commands");
COUNTER(checks, "check_conditions", "commands that ended with sense data");
COUNTER(not_ready, "not_ready", "of these: not ready");
COUNTER(medium, "medium_errors", "of these: medium or hardware errors");
COUNTER(illegal, "illegal_requests", "of these: illegal requests");
COUNTER(attentions, "unit_attentions", "of these: unit attentions");
COUNTER(protect, "data_protect", "of these: write protected, or no space");
COUNTER(miscompares, "miscompares", "of these: miscompares");
COUNTER(aborted, "aborted", "commands that were aborted");
COUNTER(busy, "busy", "commands answered BUSY or TASK SET FULL");
COUNTER(conflicts, "reservation_conflicts", "reservation conflicts");

static struct counter *const all[] = {
	&reads,	      &writes,	&unmaps,  &others,     &checks,
	&not_ready,   &medium,	&illegal, &attentions, &protect,
	&miscompares, &aborted, &busy,	  &conflicts,
};

void scsi__stats_register(void)
{
	for (unsigned i = 0; i < ARRAY_LEN(all); i++)
		counter_register(all[i]);
}

static struct counter *kind(const struct scsi_cmd *cmd)
{
	switch (cmd->cdb[0]) {
	case 0x08:
	case 0x28:
	case 0x88:
	case 0xa8:
		return &reads;
	case 0x0a:
	case 0x2a:
	case 0x2e:
	case 0x89:
	case 0x8a:
	case 0x8b:
	case 0x8e:
	case 0x9c:
	case 0xaa:
	case 0xae:
		return &writes;
	case 0x41:
	case 0x42:
	case 0x48:
	case 0x93:
		return &unmaps;
	default:
		return &others;
	}
}

static void count_sense(const struct scsi_cmd *cmd)
{
	const uint8_t *s = cmd->sense;
	static struct counter *const keys[16] = {
		[2] = &not_ready,     [3] = &medium,	 [4] = &medium,
		[5] = &illegal,	      [6] = &attentions, [7] = &protect,
		[0xe] = &miscompares,
	};
	struct counter *key;

	counter_add(&checks, 1);
	key = keys[((s[0] & 0x7f) == 0x72 ? s[1] : s[2]) & 0xf];
	if (key != NULL)
		counter_add(key, 1);
}

void scsi__count(const struct scsi_cmd *cmd)
{
	counter_add(kind(cmd), 1);
	switch (cmd->status) {
	case SCSI_CHECK_CONDITION:
		count_sense(cmd);
		break;
	case SCSI_BUSY:
	case SCSI_TASK_SET_FULL:
		counter_add(&busy, 1);
		break;
	case SCSI_RESERVATION_CONFLICT:
		counter_add(&conflicts, 1);
		break;
	case SCSI_TASK_ABORTED:
		counter_add(&aborted, 1);
		break;
	default:
		break;
	}
}
