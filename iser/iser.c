/* iser: the room's face: opening, closing, health, counters. */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"

#include <stdio.h>

#define COUNTER(var, n, h) struct counter var = { .name = n, .help = h }

COUNTER(iser__conns, "basalt_iser_connections", "RDMA connections now");
COUNTER(iser__refused, "basalt_iser_connections_refused_total",
	"RDMA connections that were not accepted");
COUNTER(iser__lost, "basalt_iser_connections_lost_total",
	"RDMA connections that ended without a logout");
COUNTER(iser__reads, "basalt_iser_reads_total", "RDMA READs posted");
COUNTER(iser__writes, "basalt_iser_writes_total", "RDMA WRITEs posted");
COUNTER(iser__sends, "basalt_iser_sends_total", "PDUs sent");
COUNTER(iser__receives_posted, "basalt_iser_receives_posted",
	"receive buffers that wait for a PDU now");
COUNTER(iser__invalidated, "basalt_iser_invalidated_total",
	"responses that invalidated the initiator's STag");
COUNTER(iser__undrained, "basalt_iser_undrained_total",
	"queue pairs destroyed before the device let go of them");

static void stats_open(void)
{
	struct counter *const all[] = {
		&iser__conns,		&iser__refused,	    &iser__lost,
		&iser__reads,		&iser__writes,	    &iser__sends,
		&iser__receives_posted, &iser__invalidated, &iser__undrained,
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		counter_register(all[i]);
}

static void check(struct health_check *check, struct health_result *out)
{
	struct iser *iser = check->data;
	struct iser_portal *p, *worst = NULL;

	TAILQ_FOREACH (p, &iser->portals, link)
		if (p->id == NULL &&
		    (worst == NULL || (p->alone && !worst->alone)))
			worst = p;
	if (worst == NULL)
		return;
	out->level = worst->alone ? HEALTH_BAD : HEALTH_INFO;
	snprintf(out->cause, sizeof(out->cause), "portal %u%s: %.180s",
		 worst->number,
		 worst->alone ? " serves nobody, as it is for iSER alone"
			      : " serves TCP, but no iSER",
		 worst->why);
	snprintf(out->fix, sizeof(out->fix),
		 "Give it an RDMA device and RLIMIT_MEMLOCK (LimitMEMLOCK=) "
		 "above [memory] arena, or: basalt portal set ADDR:PORT "
		 "--transport tcp");
}

static void on_closed(struct env_task *task)
{
	struct iser *iser = container_of(task, struct iser, close_task);
	void (*cb)(void *arg) = iser->close_cb;
	void *arg = iser->close_arg;

	assert(TAILQ_EMPTY(&iser->hot));
	assert(iser->own_receives == 0);
	if (iser->poll_task.queued) { /* it runs first, and finds nothing */
		env_defer(iser->env, &iser->close_task);
		return;
	}
	env_timer_stop(iser->env, &iser->sweep);
	iser__devices_close(iser);
	iser__channel_close(iser);
	health_unregister(&iser->health);
	free(iser);
	cb(arg);
}

void iser__maybe_closed(struct iser *iser)
{
	if (iser->closing && iser->conns_count == 0)
		env_defer(iser->env, &iser->close_task);
}

int iser_open(const struct iser_config *config, struct iser **out)
{
	struct iser *iser = calloc(1, sizeof(*iser));

	if (iser == NULL)
		return -ENOMEM;
	iser->env = config->env;
	iser->iscsi = config->iscsi;
	iser->arena = config->arena;
	iser->spin_ns = config->spin_ns;
	TAILQ_INIT(&iser->portals);
	LIST_INIT(&iser->devices);
	TAILQ_INIT(&iser->conns);
	LIST_INIT(&iser->leaving);
	TAILQ_INIT(&iser->hot);
	iser->poll_task.cb = iser__cq_turn;
	iser->close_task.cb = on_closed;
	iser->sweep.cb = iser__sweep;
	iser->health = (struct health_check){ .name = "iser",
					      .run = check,
					      .data = iser };
	health_register(&iser->health);
	stats_open();
	*out = iser;
	return 0;
}

void iser_close(struct iser *iser, void (*cb)(void *arg), void *arg)
{
	assert(!iser->closing);
	iser->closing = true;
	iser->close_cb = cb;
	iser->close_arg = arg;
	iser__portals_close(iser);
	iser__leaving_close(iser);
	iser__maybe_closed(iser);
}
