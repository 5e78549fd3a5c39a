/*
 * iser_rig: iser on a fake device below a real target over a fake dom, and the
 * messages of an initiator.  Included by test files; it is part of each.
 */
#ifndef BASALT_TESTS_UNIT_ISER_RIG_H
#define BASALT_TESTS_UNIT_ISER_RIG_H

#include "iser/iser_int.h"

#include "tests/lib/fake_rdma.h"
#include "tests/unit/iscsi_target.h"
#include "tests/unit/iser_message.h"

#include <arpa/inet.h>

static struct iser *iser;

/* Turns of the loop, enough for whatever is on its way. */
static inline void turns(void)
{
	for (unsigned i = 0; i < 40; i++)
		shard_step(ts.env, MSEC / 10);
}

static inline void on_tick(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

static inline void wait_ms(unsigned ms)
{
	bool done = false;
	uv_timer_t timer;

	uv_timer_init(shard_loop(ts.env), &timer);
	timer.data = &done;
	uv_timer_start(&timer, on_tick, ms, 0);
	test_run(&ts, &done);
	uv_close((uv_handle_t *)&timer, NULL);
	turns();
}

static inline void rooms_open_at(uint32_t address)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(3260),
				  .sin_addr.s_addr = htonl(address) };

	target_open((struct iscsi_config){ 0 });
	CHECK_EQ(iscsi_portal_declare(iscsi, 1, (struct sockaddr *)&at, 1), 0);
	target_fill();
	CHECK_EQ(iser_open(&(struct iser_config){ .env = ts.env,
						  .iscsi = iscsi,
						  .arena = ts.arena },
			   &iser),
		 0);
	CHECK_EQ(iser_listen(iser, 1, (struct sockaddr *)&at, true), 0);
	CHECK_EQ(iser_listen(iser, 1, (struct sockaddr *)&at, true), 0);
	turns();
}

static inline void rooms_open(void)
{
	rooms_open_at(INADDR_LOOPBACK);
}

static inline void fixture_with(struct fake_rdma_config config)
{
	fake_rdma_open(&config);
	rooms_open();
}

static inline void on_iscsi_closed(void *arg)
{
	iscsi = NULL;
	iser_close(iser, on_done, arg);
}

/* Every connection comes down; peers are freed between this and the next. */
static inline void rooms_close(void)
{
	bool done = false;

	iscsi_close(iscsi, 0, on_iscsi_closed, &done);
	test_run(&ts, &done);
}

/* Nothing stayed behind, and every page is home: the arena asserts that. */
static inline void rooms_fini(void)
{
	dom_end();
	fake_rdma_close();
	CHECK_EQ(counter_value(&iser__conns), 0);
	CHECK_EQ(counter_value(&iser__receives_posted), 0);
}

/* ---- messages ---- */

/* For snprintf(). */
#define ISER_LOGIN_TEXT                                                        \
	"InitiatorName=" WHO "%cTargetName=" IQN "%c"                          \
	"SessionType=Normal%cRDMAExtensions=Yes%c"                             \
	"ImmediateData=Yes%cInitialR2T=No%c"                                   \
	"TargetRecvDataSegmentLength=262144%c"                                 \
	"InitiatorRecvDataSegmentLength=262144%c"
#define ISER_LOGIN_ZEROS 0, 0, 0, 0, 0, 0, 0, 0

#endif
