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
COUNTER(copies, "copies", "EXTENDED COPY");
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

struct counter scsi__copied_bytes = {
	.name = "basalt_scsi_copied_bytes_total",
	.help = "bytes that EXTENDED COPY has copied",
};

static struct counter *const all[] = {
	&reads,	     &writes,	 &unmaps,      &others,
	&checks,     &not_ready, &medium,      &illegal,
	&attentions, &protect,	 &miscompares, &aborted,
	&busy,	     &conflicts, &copies,      &scsi__copied_bytes,
};

static struct histogram read_times = {
	.name = "basalt_scsi_read_seconds",
	.stage = "read",
	.rank = 10,
	.help = "reads, from the command to its answer",
};
static struct histogram write_times = {
	.name = "basalt_scsi_write_seconds",
	.stage = "write",
	.rank = 12,
	.help = "writes, from the command to its answer",
};
static struct histogram data_times = {
	.name = "basalt_scsi_write_data_seconds",
	.stage = "write data",
	.rank = 13,
	.help = "writes until their data is here: memory, initiator, network",
};
static struct histogram sent_times = {
	.name = "basalt_scsi_read_data_seconds",
	.stage = "read data",
	.rank = 11,
	.help = "what reads answered until it is sent: network, initiator",
};

void scsi__stats_register(void)
{
	histogram_register(&read_times);
	histogram_register(&sent_times);
	histogram_register(&write_times);
	histogram_register(&data_times);
	for (unsigned i = 0; i < ARRAY_LEN(all); i++)
		counter_register(all[i]);
}

enum kind { OTHERS, READS, WRITES, UNMAPS, COPIES };

static struct counter *const counters[] = {
	[OTHERS] = &others, [READS] = &reads,	[WRITES] = &writes,
	[UNMAPS] = &unmaps, [COPIES] = &copies,
};

static const uint8_t kinds[256] = {
	[0x08] = READS,	 [0x28] = READS,  [0x88] = READS,  [0xa8] = READS,
	[0x0a] = WRITES, [0x2a] = WRITES, [0x2e] = WRITES, [0x89] = WRITES,
	[0x8a] = WRITES, [0x8b] = WRITES, [0x8e] = WRITES, [0x9c] = WRITES,
	[0xaa] = WRITES, [0xae] = WRITES, [0x41] = UNMAPS, [0x42] = UNMAPS,
	[0x48] = UNMAPS, [0x93] = UNMAPS, [0x83] = COPIES,
};

static enum kind kind(const struct scsi_cmd *cmd)
{
	return kinds[cmd->cdb[0]];
}

/* Its sense key tells of a fault of the unit's, not of what was asked. */
static bool faulty(unsigned key)
{
	return key == 2 || key == 3 || key == 4 || key == 7 || key == 0xb;
}

static unsigned sense_key(const struct scsi_cmd *cmd)
{
	const uint8_t *s = cmd->sense;

	return ((s[0] & 0x7f) == 0x72 ? s[1] : s[2]) & 0xf;
}

static void count_sense(const struct scsi_cmd *cmd)
{
	static struct counter *const keys[16] = {
		[2] = &not_ready,     [3] = &medium,	 [4] = &medium,
		[5] = &illegal,	      [6] = &attentions, [7] = &protect,
		[0xe] = &miscompares,
	};
	struct counter *key = keys[sense_key(cmd)];

	counter_add(&checks, 1);
	if (key != NULL)
		counter_add(key, 1);
}

/* ---- of an object ---- */

struct scsi_usage *scsi_usage_new(void)
{
	struct scsi_usage *usage = calloc(1, sizeof(*usage));

	if (usage != NULL)
		atomic_init(&usage->refs, 1);
	return usage;
}

struct scsi_usage *scsi_usage_get(struct scsi_usage *usage)
{
	atomic_fetch_add(&usage->refs, 1);
	return usage;
}

void scsi_usage_put(struct scsi_usage *usage)
{
	if (usage != NULL && atomic_fetch_sub(&usage->refs, 1) == 1)
		free(usage);
}

/* Nobody else writes there now. */
static void add(_Atomic uint64_t *at, uint64_t n)
{
	atomic_store_explicit(
		at, atomic_load_explicit(at, memory_order_relaxed) + n,
		memory_order_relaxed);
}

static void usage_failed(const struct scsi_cmd *cmd)
{
	if (cmd->lun != NULL && kind(cmd) != OTHERS)
		add(&cmd->lun->usage->failed, 1);
}

/* @cmd has moved this much. */
static uint64_t moved(const struct scsi_cmd *cmd)
{
	return cmd->status == SCSI_GOOD ? MIN(cmd->transfer_len, cmd->edtl) : 0;
}

/* ---- a command has its answer ---- */

void scsi__count(const struct scsi_cmd *cmd)
{
	counter_add(counters[kind(cmd)], 1);
	switch (cmd->status) {
	case SCSI_CHECK_CONDITION:
		count_sense(cmd);
		if (faulty(sense_key(cmd)))
			usage_failed(cmd);
		break;
	case SCSI_BUSY:
	case SCSI_TASK_SET_FULL:
		counter_add(&busy, 1);
		usage_failed(cmd);
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

static uint64_t passed(const struct scsi_cmd *cmd)
{
	return env_now(cmd->target->env) - cmd->since_ns;
}

void scsi__time_data(const struct scsi_cmd *cmd)
{
	if (kind(cmd) == WRITES)
		histogram_add(&data_times, passed(cmd));
}

void scsi__time_end(struct scsi_cmd *cmd)
{
	uint64_t now = env_now(cmd->target->env), ns = now - cmd->since_ns;
	struct scsi_usage *usage = cmd->lun != NULL ? cmd->lun->usage : NULL;

	cmd->since_ns = now;
	if (usage == NULL)
		return;
	switch (kind(cmd)) {
	case READS:
		histogram_add(&read_times, ns);
		histogram_of_add(&usage->reads, ns);
		add(&usage->read_bytes, moved(cmd));
		break;
	case WRITES:
		histogram_add(&write_times, ns);
		histogram_of_add(&usage->writes, ns);
		add(&usage->written_bytes, moved(cmd));
		break;
	case UNMAPS:
		add(&usage->unmaps, 1);
		break;
	case COPIES:
	case OTHERS:
		break;
	}
}

void scsi__time_sent(const struct scsi_cmd *cmd)
{
	if (kind(cmd) == READS)
		histogram_add(&sent_times, passed(cmd));
}
