/*
 * admin_latency: where requests spend their time.  What the rooms' histograms
 * gained in some seconds, or hold since the start.
 */
#define LOG_ROOM LOG_NODE
#include "base/stats.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <stdlib.h>

struct latency {
	struct admin_req *r;
	struct admin_watch watch;
	unsigned seconds;
	size_t count;
	struct latency_of {
		struct histogram *histogram;
		struct histogram_value value; /* when it began; then the gain */
	} of[];
};

static void count_histogram(struct histogram *histogram, void *arg)
{
	*(size_t *)arg += 1;
}

static void take(struct histogram *histogram, void *arg)
{
	struct latency *l = arg;

	l->of[l->count++].histogram = histogram;
}

/* What came since @of's value was taken. */
static void value_gain(struct latency_of *of)
{
	struct histogram_value now;

	histogram_read(of->histogram, &now);
	histogram_gain(&now, &of->value);
	of->value = now;
}

static void fill(Admin__Latency *out, const struct latency_of *of)
{
	const struct histogram_value *v = &of->value;

	admin__latency__init(out);
	out->stage = (char *)of->histogram->stage;
	out->help = (char *)of->histogram->help;
	out->count = v->count;
	out->mean_ns = v->count > 0 ? v->sum_ns / v->count : 0;
	out->p50_ns = histogram_quantile(v, 500);
	out->p99_ns = histogram_quantile(v, 990);
	out->p999_ns = histogram_quantile(v, 999);
	out->max_ns = histogram_quantile(v, 1000);
}

static void answer(struct latency *l)
{
	Admin__Latency items[l->count], *list[l->count];
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__Latencies latencies = ADMIN__LATENCIES__INIT;

	for (size_t i = 0; i < l->count; i++) {
		value_gain(&l->of[i]);
		fill(&items[i], &l->of[i]);
		list[i] = &items[i];
	}
	latencies.seconds = l->seconds;
	latencies.stages = list;
	latencies.n_stages = l->count;
	response.result_case = ADMIN__RESPONSE__RESULT_LATENCIES;
	response.latencies = &latencies;
	admin__reply(l->r, &response);
}

static void latency_end(struct admin_watch *watch)
{
	answer(container_of(watch, struct latency, watch));
}

void admin__latency(struct admin_req *r)
{
	uint32_t seconds = r->msg->latency->seconds;
	struct latency *l;
	size_t room = 0;

	if (admin__watch_check(r, seconds) < 0) {
		admin__refuse(r);
		return;
	}
	histogram_each(count_histogram, &room);
	l = r->ctx = calloc(1, sizeof(*l) + room * sizeof(l->of[0]));
	if (l == NULL) {
		admin__no_memory(r);
		return;
	}
	l->r = r;
	l->seconds = seconds;
	histogram_each(take, l);
	assert(l->count == room);
	for (size_t i = 0; i < l->count && seconds > 0; i++)
		histogram_read(l->of[i].histogram, &l->of[i].value);
	admin__watch(&l->watch, r, seconds, latency_end);
}
