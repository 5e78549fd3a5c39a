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

static enum health_level portal_level(const struct iser_portal *p)
{
	if (p->id == NULL)
		return p->alone ? HEALTH_BAD : HEALTH_INFO;
	if (p->partly[0] != '\0')
		return p->alone ? HEALTH_WARN : HEALTH_INFO;
	return HEALTH_OK;
}

static void check(struct health_check *check, struct health_result *out)
{
	struct iser *iser = check->data;
	struct iser_portal *p, *worst = NULL;

	TAILQ_FOREACH (p, &iser->portals, link)
		if (portal_level(p) > out->level) {
			out->level = portal_level(p);
			worst = p;
		}
	if (worst == NULL)
		return;
	if (worst->id != NULL)
		snprintf(out->cause, sizeof(out->cause), "portal %s: %.220s",
			 worst->name, worst->partly);
	else
		snprintf(out->cause, sizeof(out->cause), "portal %s%s: %.180s",
			 worst->name,
			 worst->alone
				 ? " serves nobody, as it is for iSER alone"
				 : " serves TCP, but no iSER",
			 worst->why);
	snprintf(out->fix, sizeof(out->fix),
		 "Give it an RDMA device and RLIMIT_MEMLOCK (LimitMEMLOCK=) "
		 "above [memory] arena for each device, or: basalt portal set "
		 "ADDR:PORT --transport tcp");
}

/* ---- closing ---- */

static void front_closed(struct iser *front)
{
	void (*cb)(void *arg) = front->close_cb;
	void *arg = front->close_arg;

	env_timer_stop(front->env, &front->sweep);
	iser__devices_close(front);
	assert(front->receives == 0);
	iser__channel_close(front);
	health_unregister(&front->health);
	for (unsigned i = 1; i < front->shares_count; i++)
		free(front->shares[i]);
	free(front->shares);
	free(front);
	cb(arg);
}

static void on_share_closed(struct env_task *task)
{
	struct iser *share = container_of(task, struct iser, close_task);
	struct iser *front = share->front;

	assert(front->shares_open > 0);
	if (--front->shares_open == 0)
		front_closed(front);
}

/* On a share: what its last connection left is there yet. */
static void on_share_close(struct env_task *task)
{
	struct iser *share = container_of(task, struct iser, close_task);

	assert(TAILQ_EMPTY(&share->conns));
	assert(TAILQ_EMPTY(&share->hot));
	if (share->poll_task.queued) { /* it runs first, and finds nothing */
		env_defer(share->env, &share->close_task);
		return;
	}
	iser__leaving_close(share);
	iser__channel_close(share);
	share->close_task.cb = on_share_closed;
	env_post(share->front->env, &share->close_task);
}

static void on_close(struct env_task *task)
{
	struct iser *front = container_of(task, struct iser, close_task);

	assert(TAILQ_EMPTY(&front->conns));
	assert(TAILQ_EMPTY(&front->hot));
	if (front->poll_task.queued) {
		env_defer(front->env, &front->close_task);
		return;
	}
	iser__leaving_close(front);
	if (front->shares_count == 1) {
		front_closed(front);
		return;
	}
	/* Ids of connections that ended there are on their way before this. */
	front->shares_closing = true;
	front->shares_open = front->shares_count - 1;
	for (unsigned i = 1; i < front->shares_count; i++)
		env_post(front->shares[i]->env, &front->shares[i]->close_task);
}

void iser__maybe_closed(struct iser *front)
{
	if (front->closing && front->conns_count == 0)
		env_defer(front->env, &front->close_task);
}

void iser_close(struct iser *iser, void (*cb)(void *arg), void *arg)
{
	assert(!iser->closing);
	iser->closing = true;
	iser->close_cb = cb;
	iser->close_arg = arg;
	iser__portals_close(iser);
	iser__maybe_closed(iser);
}

/* ---- opening ---- */

static struct iser *share_new(struct iser *front, struct env *env,
			      uint64_t spin_ns)
{
	struct iser *iser = calloc(1, sizeof(*iser));

	if (iser == NULL)
		return NULL;
	iser->front = front != NULL ? front : iser;
	iser->env = env;
	iser->spin_ns = spin_ns;
	TAILQ_INIT(&iser->conns);
	TAILQ_INIT(&iser->hot);
	LIST_INIT(&iser->leaving);
	iser->poll_task.cb = iser__cq_turn;
	iser->look_task.cb = iser__on_look;
	iser->close_task.cb = front != NULL ? on_share_close : on_close;
	return iser;
}

static int shares_open(struct iser *front, const struct iser_config *config)
{
	unsigned count = MAX(config->shards, 1u);

	front->shares = calloc(count, sizeof(struct iser *));
	if (front->shares == NULL)
		return -ENOMEM;
	front->shares[0] = front;
	for (unsigned i = 1; i < count; i++) {
		front->shares[i] =
			share_new(front, config->envs[i], config->spin_ns);
		if (front->shares[i] == NULL)
			goto err;
		front->shares_count = i + 1;
	}
	front->shares_count = count;
	return 0;

err:
	for (unsigned i = 1; i < front->shares_count; i++)
		free(front->shares[i]);
	free(front->shares);
	return -ENOMEM;
}

int iser_open(const struct iser_config *config, struct iser **out)
{
	struct iser *iser = share_new(NULL, config->env, config->spin_ns);

	if (iser == NULL)
		return -ENOMEM;
	iser->iscsi = config->iscsi;
	iser->arena = config->arena;
	TAILQ_INIT(&iser->portals);
	LIST_INIT(&iser->devices);
	iser->sweep.cb = iser__sweep;
	if (shares_open(iser, config) < 0) {
		free(iser);
		return -ENOMEM;
	}
	iser->health = (struct health_check){ .name = "iser",
					      .run = check,
					      .data = iser };
	health_register(&iser->health);
	stats_open();
	*out = iser;
	return 0;
}
