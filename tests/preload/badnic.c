/*
 * badnic: an RDMA adapter that is less generous and less tidy than the one that is
 * there, within what the verbs' rules allow it.
 *
 *	LD_PRELOAD=badnic.so BADNIC=FILE basaltd ...
 *
 * FILE has lines "NAME VALUE" (knobs[] below says which); it is read whenever a
 * device is queried and a completion queue is made, so that it can be changed for
 * the connections to come.
 *
 *	limits		what a device says that it has is lowered, and what is asked
 *			for beyond that is refused
 *	completions	are held back, those of sends apart from those of receives,
 *			and told of by an event when they are there
 *	errors		completions become errors; as these tell nothing but whose
 *			they are, the rest is filled with rubbish.  A queue pair in
 *			error may refuse to be posted to, as some adapters' do
 *	events		of the device, in the midst of all; that of the last receive
 *			late, or never
 *
 * A queue pair that is destroyed takes what it has not told along, as the library
 * of an adapter cleans the completion queue: of a shared receive queue these are
 * lost.  Meanwhile is looked at what only an adapter sees: more in a queue than it
 * was made for, too many pieces, memory that changes while it is the device's.
 * Standard error hears of it, as "badnic: broken: ...", of the last error, event or
 * refusal that it was told to make, and of each queue pair at its end.  Of wr_id it
 * is known that basaltd's receives have odd ones.
 */
#include "tests/preload/real.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SENDS 4096u /* of a queue pair, a power of two */
#define TABLE 1024u
#define PULL 32
#define SGES 32

#define KNOBS(K)                                                               \
	/* limits; -1: as they are */                                          \
	K(max_sge, -1)                                                         \
	K(max_sge_rd, -1)                                                      \
	K(max_rd_atom, -1)                                                     \
	K(max_qp, -1)                                                          \
	K(max_qp_wr, -1)                                                       \
	K(max_cqe, -1)                                                         \
	K(max_srq, -1)                                                         \
	K(max_srq_wr, -1)                                                      \
	K(max_srq_sge, -1)                                                     \
	K(max_inline, -1)                                                      \
	K(max_mr_size, -1)                                                     \
	K(srqs_fail, 0) /* none can be made, whatever max_srq is */            \
	/* completions */                                                      \
	K(hold_us, 0) /* up to so long */                                      \
	K(flush_us, 0) /* and those of a queue pair that ended */              \
	K(few, 0) /* a poll tells one */                                       \
	K(spurious, 0) /* of a hundred armings bring an event for nothing */   \
	/* of posting: each Nth request is refused, so often in all */         \
	K(post_fail, 0)                                                        \
	K(post_fails, 0)                                                       \
	K(refuse, 0) /* a queue pair in error takes nothing */                 \
	K(negative, 0) /* errors have the wrong sign */                        \
	/* each Nth send, or one soon after, ends with an error, so often */   \
	K(error, 0)                                                            \
	K(errors, 0)                                                           \
	/* the last receive of a queue pair: 0: as it is; -1: is never told */ \
	K(last_us, 0)                                                          \
	/* each Nth poll brings the next event of bits @async, so often */     \
	K(async, 0)                                                            \
	K(async_every, 0)                                                      \
	K(asyncs, 0)

static struct {
#define K(name, value) long name;
	KNOBS(K)
#undef K
} knob = {
#define K(name, value) .name = value,
	KNOBS(K)
#undef K
};

/* A completion that is there, and not told. */
struct held {
	struct ibv_wc wc;
	uint64_t due_us;
	struct work *work; /* a receive's */
	STAILQ_ENTRY(held) link;
};
STAILQ_HEAD(helds, held);

/* A work request that the device has. */
struct work {
	uint64_t wr_id, sum;
	const void *owner; /* a receive's: queue pair, or shared queue */
	bool looked; /* its memory may not change: @sum */
	unsigned n;
	struct ibv_sge sge[SGES];
	LIST_ENTRY(work) link; /* a receive's: receives[] */
};

struct queue {
	struct ibv_cq *cq;
	struct helds held[2]; /* sends, receives */
	uint64_t last_us[2];
	unsigned count;
	struct channel *channel;
	unsigned made_up; /* events that the device knows nothing of */
	LIST_ENTRY(queue) link;
};

struct pair {
	struct ibv_qp *qp;
	struct ibv_qp_cap cap;
	bool error, failed; /* in error; it was us who brought it there */
	bool last; /* its last receive is told of, or will be */
	struct work *sends;
	uint64_t head, tail;
	unsigned receives, held, passed, flushed;
	LIST_ENTRY(pair) link;
};

struct channel {
	struct ibv_comp_channel *channel;
	int real, timer, both;
	LIST_ENTRY(channel) link;
};

/* An event of a device, made up. */
struct event {
	struct ibv_async_event event;
	struct ibv_qp *qp;
	uint64_t due_us;
	STAILQ_ENTRY(event) link;
};

struct device {
	struct ibv_context *verbs;
	struct ibv_context_ops ops;
	int real, timer, both;
	bool made_up; /* the event that was got last */
	STAILQ_HEAD(, event) events;
	LIST_ENTRY(device) link;
};

/* How full a shared receive queue is. */
struct shared {
	struct ibv_srq *srq;
	unsigned max, count;
	LIST_ENTRY(shared) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, queue) queues = LIST_HEAD_INITIALIZER(queues);
static LIST_HEAD(, pair) pairs = LIST_HEAD_INITIALIZER(pairs);
static LIST_HEAD(, channel) channels = LIST_HEAD_INITIALIZER(channels);
static LIST_HEAD(, device) devices = LIST_HEAD_INITIALIZER(devices);
static LIST_HEAD(, shared) shareds = LIST_HEAD_INITIALIZER(shareds);
static LIST_HEAD(, work) receives[TABLE];
static struct {
	unsigned qps, posted, post_fails, told, errors, polled, asyncs;
} count;
static unsigned seed = 1;

#define FIND(list, field, value)                                               \
	({                                                                     \
		__typeof__(LIST_FIRST(list)) found_;                           \
		LIST_FOREACH (found_, list, link)                              \
			if (found_->field == (value))                          \
				break;                                         \
		found_;                                                        \
	})
#define BROKEN(...)                                                            \
	(fprintf(stderr, "badnic: broken: " __VA_ARGS__), fputc('\n', stderr))

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t chance(long below)
{
	return below > 0 ? (uint64_t)rand_r(&seed) % (uint64_t)below : 0;
}

static void last_told(unsigned made, long of)
{
	if (made == of)
		fprintf(stderr, "badnic: all made\n");
}

static void knobs_read(void)
{
	const char *file = getenv("BADNIC");
	FILE *f = file != NULL ? fopen(file, "re") : NULL;
	char name[32];
	long value;

	if (f == NULL)
		return;
	while (fscanf(f, "%31s %ld", name, &value) == 2) {
#define K(known, normal)                                                       \
	if (strcmp(name, #known) == 0) {                                       \
		knob.known = value;                                            \
		continue;                                                      \
	}
		KNOBS(K)
#undef K
		BROKEN("no knob %s", name);
	}
	fclose(f);
}

/* ---- descriptors that become readable for us, too ---- */

static int watch_both(int fd, int *timer)
{
	struct epoll_event e = { .events = EPOLLIN };
	int both = epoll_create1(EPOLL_CLOEXEC);

	*timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (both < 0 || *timer < 0 ||
	    epoll_ctl(both, EPOLL_CTL_ADD, fd, &e) < 0 ||
	    epoll_ctl(both, EPOLL_CTL_ADD, *timer, &e) < 0 ||
	    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
		abort();
	return both;
}

static void timer_set(int timer, uint64_t due_us)
{
	struct itimerspec at = {
		.it_value = { .tv_sec = (time_t)(due_us / 1000000),
			      .tv_nsec = (long)(due_us % 1000000) * 1000 + 1 },
	};

	if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) < 0)
		abort();
}

static bool timer_rang(int timer)
{
	uint64_t times;

	return read(timer, &times, sizeof(times)) == (ssize_t)sizeof(times);
}

/* ---- memory ---- */

static uint64_t sum_of(const struct work *work, size_t len)
{
	uint64_t sum = 14695981039346656037ull, word;

	for (unsigned i = 0; i < work->n && len > 0; i++) {
		const uint8_t *at = (const uint8_t *)work->sge[i].addr;
		size_t n =
			work->sge[i].length < len ? work->sge[i].length : len;

		for (size_t j = 0; j + sizeof(word) <= n; j += 40) {
			memcpy(&word, at + j, sizeof(word));
			sum = (sum ^ word) * 1099511628211ull;
		}
		len -= n;
	}
	return sum;
}

static void work_set(struct work *work, uint64_t wr_id,
		     const struct ibv_sge *sge, int n)
{
	work->wr_id = wr_id;
	work->n = n < SGES ? (unsigned)n : SGES;
	work->looked = false;
	memcpy(work->sge, sge, work->n * sizeof(*sge));
}

static void work_check(const struct work *work, const char *what, size_t len)
{
	if (work->looked && work->sum != sum_of(work, len))
		BROKEN("memory of a %s changed while it was the device's",
		       what);
}

/* ---- completions ---- */

static void post_event(struct ibv_qp *qp, int type, uint64_t due_us);

static void pair_ends(struct pair *pair)
{
	struct queue *q = FIND(&queues, cq, pair->qp->recv_cq);
	uint64_t late = now_us() + (uint64_t)knob.flush_us;
	struct held *held;

	if (pair->error)
		return;
	pair->error = true;
	/* What was coming in is told of late. */
	STAILQ_FOREACH (held, &q->held[1], link)
		if (held->due_us < late)
			held->due_us = late;
	if (q->last_us[1] < late)
		q->last_us[1] = late;
	if (pair->last || pair->qp->srq == NULL || knob.last_us <= 0)
		return;
	pair->last = true;
	post_event(pair->qp, IBV_EVENT_QP_LAST_WQE_REACHED,
		   now_us() + (uint64_t)knob.last_us);
}

/* What a receive queue has is one less; its work, to be freed. */
static struct work *receive_take(struct pair *pair, uint64_t wr_id)
{
	struct work *work = FIND(&receives[wr_id / 64 % TABLE], wr_id, wr_id);
	struct shared *shared;

	if (work == NULL) {
		BROKEN("a receive that was not posted");
		return NULL;
	}
	LIST_REMOVE(work, link);
	shared = FIND(&shareds, srq, pair->qp->srq);
	if (shared != NULL)
		shared->count--;
	else
		pair->receives--;
	return work;
}

static void hold(struct queue *q, const struct ibv_wc *wc)
{
	struct pair *pair = FIND(&pairs, qp->qp_num, wc->qp_num);
	struct held *held = calloc(1, sizeof(*held));
	bool receive = wc->wr_id & 1;
	/* What ended is late enough: @last_us. */
	uint64_t due = now_us() +
		       (pair == NULL || pair->error ? 0 : chance(knob.hold_us));

	if (pair == NULL || held == NULL) {
		free(held);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS)
		pair_ends(pair);
	if (receive) {
		held->work = receive_take(pair, wc->wr_id);
		if (held->work != NULL && wc->status == IBV_WC_SUCCESS) {
			held->work->sum = sum_of(held->work, wc->byte_len);
			held->work->looked = true;
		}
	}
	if (due < q->last_us[receive])
		due = q->last_us[receive];
	q->last_us[receive] = due;
	held->wc = *wc;
	held->due_us = due;
	STAILQ_INSERT_TAIL(&q->held[receive], held, link);
	pair->held++;
	if (++q->count > (unsigned)q->cq->cqe)
		BROKEN("a completion queue of %d has %u", q->cq->cqe, q->count);
}

static void pull(struct queue *q)
{
	struct device *device = FIND(&devices, verbs, q->cq->context);
	struct ibv_wc wc[PULL];
	int n;

	do {
		n = device->ops.poll_cq(q->cq, PULL, wc);
		for (int i = 0; i < n; i++)
			hold(q, &wc[i]);
	} while (n == PULL);
}

/* What an error does not tell. */
static void rubbish(struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return;
	wc->opcode = (enum ibv_wc_opcode)0xa5a5a5a5;
	wc->byte_len = wc->imm_data = 0xa5a5a5a5;
	wc->src_qp = wc->slid = 0xa5a5;
	wc->wc_flags = 0xa5a5a5a5;
}

static void unhold(struct queue *q, struct helds *list)
{
	struct held *held = STAILQ_FIRST(list);

	STAILQ_REMOVE_HEAD(list, link);
	q->count--;
	free(held->work);
	free(held);
}

/* Does this one end with an error instead?  One that finds something coming in. */
static void error_maybe(const struct queue *q, struct pair *pair,
			struct ibv_wc *wc)
{
	static const enum ibv_wc_status some[] = {
		IBV_WC_RETRY_EXC_ERR,
		IBV_WC_RNR_RETRY_EXC_ERR,
		IBV_WC_REM_ACCESS_ERR,
		IBV_WC_LOC_PROT_ERR,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (knob.error <= 0 || pair->error || count.errors >= knob.errors ||
	    ++count.told < knob.error || STAILQ_EMPTY(&q->held[1]))
		return;
	count.told = 0;
	wc->status = some[count.errors++ % 4];
	last_told(count.errors, knob.errors);
	pair->failed = true;
	pair_ends(pair);
	REAL(ibv_modify_qp)(pair->qp, &attr, IBV_QP_STATE);
}

/* Software iWARP tells of some twice, or behind others. */
static bool send_has(const struct pair *pair, uint64_t wr_id)
{
	for (uint64_t i = pair->head; i < pair->tail; i++)
		if (pair->sends[i % SENDS].wr_id == wr_id)
			return true;
	return false;
}

/* The oldest send is told, or one before it that had nothing to tell but now. */
static void tell_send(struct queue *q, struct pair *pair, struct ibv_wc *out)
{
	struct held *held = STAILQ_FIRST(&q->held[0]);
	struct work *work = &pair->sends[pair->head % SENDS];

	*out = held->wc;
	if (pair->failed && pair->head < pair->tail) {
		out->wr_id = work->wr_id;
		out->status = IBV_WC_WR_FLUSH_ERR;
	}
	if (send_has(pair, out->wr_id))
		do {
			work = &pair->sends[pair->head++ % SENDS];
			work_check(work, "send", SIZE_MAX);
		} while (work->wr_id != out->wr_id);
	if (out->status == IBV_WC_SUCCESS)
		error_maybe(q, pair, out);
	if (out->wr_id == held->wc.wr_id)
		unhold(q, &q->held[0]);
}

static void tell(struct queue *q, bool receive, struct ibv_wc *out)
{
	struct held *held = STAILQ_FIRST(&q->held[receive]);
	struct pair *pair = FIND(&pairs, qp->qp_num, held->wc.qp_num);
	struct held *other = STAILQ_FIRST(&q->held[!receive]);

	if (receive) {
		*out = held->wc;
		if (held->work != NULL)
			work_check(held->work, "receive", out->byte_len);
		unhold(q, &q->held[1]);
	} else {
		tell_send(q, pair, out);
	}
	if (other != NULL)
		pair->passed++;
	if (out->status != IBV_WC_SUCCESS)
		pair->flushed++;
	rubbish(out);
}

/* Which may be told now: 0 sends, 1 receives; -1: none. */
static int due_now(const struct queue *q, uint64_t now)
{
	const struct held *s = STAILQ_FIRST(&q->held[0]);
	const struct held *r = STAILQ_FIRST(&q->held[1]);
	bool send = s != NULL && s->due_us <= now;
	bool receive = r != NULL && r->due_us <= now;

	if (send && receive)
		return s->due_us <= r->due_us ? 0 : 1;
	return send ? 0 : receive ? 1 : -1;
}

static void async_maybe(const struct queue *q)
{
	static int type;
	struct pair *pair;

	if (knob.async_every <= 0 || count.asyncs >= knob.asyncs ||
	    ++count.polled % (unsigned)knob.async_every != 0)
		return;
	do
		type = (type + 1) % 32;
	while ((knob.async >> type & 1) == 0);
	LIST_FOREACH (pair, &pairs, link)
		if (pair->qp->send_cq == q->cq &&
		    (type != IBV_EVENT_SRQ_ERR || pair->qp->srq != NULL)) {
			last_told(++count.asyncs, knob.asyncs);
			post_event(pair->qp, type, 0);
		}
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct queue *q;
	uint64_t now;
	int done = 0, which;

	pthread_mutex_lock(&lock);
	q = FIND(&queues, cq, cq);
	pull(q);
	async_maybe(q);
	now = now_us();
	while (done < (knob.few ? 1 : n) && (which = due_now(q, now)) >= 0)
		tell(q, which, &wc[done++]);
	pthread_mutex_unlock(&lock);
	return done;
}

/* An event for the first one that comes to be there from now on. */
static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	struct device *device = FIND(&devices, verbs, cq->context);
	int rv = device->ops.req_notify_cq(cq, solicited);
	uint64_t now, first = UINT64_MAX;
	struct queue *q;

	pthread_mutex_lock(&lock);
	q = FIND(&queues, cq, cq);
	pull(q);
	now = now_us();
	for (unsigned i = 0; i < 2; i++) {
		const struct held *held;

		STAILQ_FOREACH (held, &q->held[i], link)
			if (held->due_us > now) {
				if (held->due_us < first)
					first = held->due_us;
				break;
			}
	}
	if (chance(100) < (uint64_t)knob.spurious)
		first = now;
	if (first != UINT64_MAX)
		timer_set(q->channel->timer, first);
	pthread_mutex_unlock(&lock);
	return rv;
}

/* ---- posting ---- */

static int wrong(int err)
{
	return knob.negative ? -err : err;
}

/* The first of the chain that the device does not take; NULL: it takes all. */
static struct ibv_send_wr *refused(struct pair *pair, struct ibv_send_wr *wr,
				   int *err)
{
	if (knob.refuse && pair->error) {
		*err = EINVAL;
		return wr;
	}
	for (; wr != NULL && knob.post_fail > 0 &&
	       count.post_fails < knob.post_fails;
	     wr = wr->next)
		if (++count.posted % (unsigned)knob.post_fail == 0) {
			last_told(++count.post_fails, knob.post_fails);
			*err = ENOMEM;
			return wr;
		}
	return NULL;
}

static void send_note(struct pair *pair, const struct ibv_send_wr *wr)
{
	struct work *work = &pair->sends[pair->tail++ % SENDS];
	bool get = wr->opcode == IBV_WR_RDMA_READ;
	bool inlined = wr->send_flags & IBV_SEND_INLINE;
	long most = get && knob.max_sge_rd > 0 ? knob.max_sge_rd
					       : pair->cap.max_send_sge;

	if (wr->num_sge > most)
		BROKEN("%d pieces of at most %ld", wr->num_sge, most);
	if (pair->tail - pair->head > pair->cap.max_send_wr)
		BROKEN("a send queue of %u has %u", pair->cap.max_send_wr,
		       (unsigned)(pair->tail - pair->head));
	if (inlined && wr->sg_list[0].length > pair->cap.max_inline_data)
		BROKEN("%u bytes inline", wr->sg_list[0].length);
	work_set(work, wr->wr_id, wr->sg_list, inlined ? 0 : wr->num_sge);
	work->looked = !get;
	work->sum = sum_of(work, SIZE_MAX);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct device *device = FIND(&devices, verbs, qp->context);
	struct ibv_send_wr *last = NULL, *stop, *w;
	struct pair *pair;
	int err = 0, rv = 0;

	pthread_mutex_lock(&lock);
	pair = FIND(&pairs, qp, qp);
	stop = refused(pair, wr, &err);
	for (w = wr; w != stop; w = w->next) {
		send_note(pair, w);
		last = w;
	}
	if (last != NULL) {
		last->next = NULL;
		rv = device->ops.post_send(qp, wr, bad);
		last->next = stop;
	}
	if (rv == 0 && stop != NULL) {
		*bad = stop;
		rv = wrong(err);
	}
	pthread_mutex_unlock(&lock);
	return rv;
}

static void receives_note(const void *owner, const struct ibv_recv_wr *wr,
			  unsigned *now, unsigned max)
{
	for (; wr != NULL; wr = wr->next) {
		struct work *work = calloc(1, sizeof(*work));

		if (work == NULL)
			abort();
		if (FIND(&receives[wr->wr_id / 64 % TABLE], wr_id, wr->wr_id))
			BROKEN("a receive is posted twice");
		work_set(work, wr->wr_id, wr->sg_list, wr->num_sge);
		work->owner = owner;
		LIST_INSERT_HEAD(&receives[wr->wr_id / 64 % TABLE], work, link);
		if (++*now > max)
			BROKEN("a receive queue of %u has %u", max, *now);
	}
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct device *device = FIND(&devices, verbs, qp->context);
	struct pair *pair;
	int rv;

	pthread_mutex_lock(&lock);
	pair = FIND(&pairs, qp, qp);
	receives_note(qp, wr, &pair->receives, pair->cap.max_recv_wr);
	rv = device->ops.post_recv(qp, wr, bad);
	pthread_mutex_unlock(&lock);
	return rv;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	struct device *device = FIND(&devices, verbs, srq->context);
	struct shared *shared;
	int rv;

	pthread_mutex_lock(&lock);
	shared = FIND(&shareds, srq, srq);
	receives_note(srq, wr, &shared->count, shared->max);
	rv = device->ops.post_srq_recv(srq, wr, bad);
	pthread_mutex_unlock(&lock);
	return rv;
}

/* ---- devices ---- */

static void device_seen(struct ibv_context *verbs)
{
	struct device *device;

	pthread_mutex_lock(&lock);
	if (verbs != NULL && FIND(&devices, verbs, verbs) == NULL) {
		device = calloc(1, sizeof(*device));
		if (device == NULL)
			abort();
		device->verbs = verbs;
		device->ops = verbs->ops;
		STAILQ_INIT(&device->events);
		device->real = verbs->async_fd;
		device->both = watch_both(device->real, &device->timer);
		verbs->async_fd = device->both;
		verbs->ops.poll_cq = poll_cq;
		verbs->ops.req_notify_cq = req_notify_cq;
		verbs->ops.post_send = post_send;
		verbs->ops.post_recv = post_recv;
		verbs->ops.post_srq_recv = post_srq_recv;
		LIST_INSERT_HEAD(&devices, device, link);
	}
	pthread_mutex_unlock(&lock);
}

struct ibv_context *ibv_open_device(struct ibv_device *which)
{
	struct ibv_context *verbs = REAL(ibv_open_device)(which);

	device_seen(verbs);
	return verbs;
}

int ibv_close_device(struct ibv_context *verbs)
{
	struct device *device;

	pthread_mutex_lock(&lock);
	device = FIND(&devices, verbs, verbs);
	if (device != NULL) {
		verbs->async_fd = device->real;
		close(device->both);
		close(device->timer);
		LIST_REMOVE(device, link);
		free(device);
	}
	pthread_mutex_unlock(&lock);
	return REAL(ibv_close_device)(verbs);
}

/* The kernel is given the descriptors with what is made. */
static void device_real(struct ibv_context *verbs, bool is)
{
	struct device *device;

	pthread_mutex_lock(&lock);
	device = FIND(&devices, verbs, verbs);
	verbs->async_fd = is ? device->real : device->both;
	pthread_mutex_unlock(&lock);
}

#define LOWER(field, to)                                                       \
	do {                                                                   \
		if ((to) >= 0 && (uint64_t)(to) < (uint64_t)attr->field)       \
			attr->field = (__typeof__(attr->field))(to);           \
	} while (0)

int ibv_query_device(struct ibv_context *verbs, struct ibv_device_attr *attr)
{
	int rv = REAL(ibv_query_device)(verbs, attr);

	knobs_read();
	LOWER(max_sge, knob.max_sge);
	LOWER(max_sge_rd, knob.max_sge_rd);
	LOWER(max_qp_rd_atom, knob.max_rd_atom);
	LOWER(max_qp_init_rd_atom, knob.max_rd_atom);
	LOWER(max_qp, knob.max_qp);
	LOWER(max_qp_wr, knob.max_qp_wr);
	LOWER(max_cqe, knob.max_cqe);
	LOWER(max_srq, knob.max_srq);
	LOWER(max_srq_wr, knob.max_srq_wr);
	LOWER(max_srq_sge, knob.max_srq_sge);
	LOWER(max_mr_size, knob.max_mr_size);
	return rv;
}

static bool beyond(long limit, uint64_t asked)
{
	return limit >= 0 && asked > (uint64_t)limit;
}

/* Both forms of ibv_reg_mr() come to one of these. */
#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t len, int access)
{
	if (beyond(knob.max_mr_size, len)) {
		errno = EINVAL;
		return NULL;
	}
	return REAL(ibv_reg_mr)(pd, at, len, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t len,
				uint64_t iova, unsigned access)
{
	if (beyond(knob.max_mr_size, len)) {
		errno = EINVAL;
		return NULL;
	}
	return REAL(ibv_reg_mr_iova2)(pd, at, len, iova, access);
}

/* ---- events of a device ---- */

static void post_event(struct ibv_qp *qp, int type, uint64_t due_us)
{
	struct device *device = FIND(&devices, verbs, qp->context);
	struct event *event = calloc(1, sizeof(*event));

	if (event == NULL)
		abort();
	event->event.event_type = (enum ibv_event_type)type;
	event->qp = event->event.element.qp = qp;
	if (type == IBV_EVENT_CQ_ERR)
		event->event.element.cq = qp->send_cq;
	if (type == IBV_EVENT_SRQ_ERR)
		event->event.element.srq = qp->srq;
	event->due_us = due_us;
	STAILQ_INSERT_TAIL(&device->events, event, link);
	timer_set(device->timer, due_us + 1);
}

/* With the last receive of a queue pair those before it are to be had. */
static void receives_are_there(const struct ibv_async_event *event)
{
	struct held *held;
	struct queue *q;

	if (event->event_type != IBV_EVENT_QP_LAST_WQE_REACHED)
		return;
	q = FIND(&queues, cq, event->element.qp->recv_cq);
	pull(q);
	STAILQ_FOREACH (held, &q->held[1], link)
		held->due_us = 0;
}

static bool made_up_event(struct device *device, struct ibv_async_event *out)
{
	uint64_t now = now_us();
	struct event *event;

	STAILQ_FOREACH (event, &device->events, link)
		if (event->due_us <= now) {
			*out = event->event;
			receives_are_there(out);
			STAILQ_REMOVE(&device->events, event, event, link);
			free(event);
			return true;
		}
	(void)timer_rang(device->timer);
	event = STAILQ_FIRST(&device->events);
	if (event != NULL)
		timer_set(device->timer, event->due_us);
	return false;
}

int ibv_get_async_event(struct ibv_context *verbs, struct ibv_async_event *out)
{
	struct device *device;
	int rv;

	pthread_mutex_lock(&lock);
	device = FIND(&devices, verbs, verbs);
	device->made_up = made_up_event(device, out);
	pthread_mutex_unlock(&lock);
	if (device->made_up)
		return 0;
	for (;;) {
		verbs->async_fd = device->real;
		rv = REAL(ibv_get_async_event)(verbs, out);
		verbs->async_fd = device->both;
		if (rv != 0 ||
		    out->event_type != IBV_EVENT_QP_LAST_WQE_REACHED ||
		    knob.last_us == 0)
			return rv;
		REAL(ibv_ack_async_event)(out);
	}
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct device *device;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (device, &devices, link)
		if (device->made_up)
			break;
	if (device != NULL)
		device->made_up = false;
	pthread_mutex_unlock(&lock);
	if (device == NULL)
		REAL(ibv_ack_async_event)(event);
}

/* ---- completion queues and their channels ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *verbs)
{
	struct ibv_comp_channel *made = REAL(ibv_create_comp_channel)(verbs);
	struct channel *c;

	if (made == NULL)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		abort();
	c->channel = made;
	c->real = made->fd;
	made->fd = c->both = watch_both(c->real, &c->timer);
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&channels, c, link);
	pthread_mutex_unlock(&lock);
	return made;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct channel *c;

	pthread_mutex_lock(&lock);
	c = FIND(&channels, channel, channel);
	LIST_REMOVE(c, link);
	pthread_mutex_unlock(&lock);
	channel->fd = c->real;
	close(c->both);
	close(c->timer);
	free(c);
	return REAL(ibv_destroy_comp_channel)(channel);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *verbs, int cqe, void *context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct channel *c;
	struct queue *q;
	struct ibv_cq *cq;

	knobs_read();
	if (beyond(knob.max_cqe, (uint64_t)cqe)) {
		errno = EINVAL;
		return NULL;
	}
	pthread_mutex_lock(&lock);
	c = FIND(&channels, channel, channel);
	pthread_mutex_unlock(&lock);
	device_real(verbs, true);
	channel->fd = c->real;
	cq = REAL(ibv_create_cq)(verbs, cqe, context, channel, vector);
	channel->fd = c->both;
	device_real(verbs, false);
	if (cq == NULL)
		return NULL;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		abort();
	q->cq = cq;
	STAILQ_INIT(&q->held[0]);
	STAILQ_INIT(&q->held[1]);
	pthread_mutex_lock(&lock);
	q->channel = c;
	LIST_INSERT_HEAD(&queues, q, link);
	pthread_mutex_unlock(&lock);
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct queue *q;

	pthread_mutex_lock(&lock);
	q = FIND(&queues, cq, cq);
	LIST_REMOVE(q, link);
	pthread_mutex_unlock(&lock);
	if (q->count > 0)
		BROKEN("%u completions left", q->count);
	free(q);
	return REAL(ibv_destroy_cq)(cq);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **context)
{
	struct channel *c;
	struct queue *q = NULL;
	int rv;

	pthread_mutex_lock(&lock);
	c = FIND(&channels, channel, channel);
	if (timer_rang(c->timer))
		q = FIND(&queues, channel, c);
	if (q != NULL) {
		q->made_up++;
		*cq = q->cq;
		*context = q->cq->cq_context;
	}
	pthread_mutex_unlock(&lock);
	if (q != NULL)
		return 0;
	channel->fd = c->real;
	rv = REAL(ibv_get_cq_event)(channel, cq, context);
	channel->fd = c->both;
	return rv;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	unsigned less;
	struct queue *q;

	pthread_mutex_lock(&lock);
	q = FIND(&queues, cq, cq);
	less = q->made_up < n ? q->made_up : n;
	q->made_up -= less;
	pthread_mutex_unlock(&lock);
	if (n > less)
		REAL(ibv_ack_cq_events)(cq, n - less);
}

/* ---- receive queues and queue pairs ---- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	unsigned asked = attr->attr.max_wr;
	struct shared *shared;
	struct ibv_srq *srq;

	if (beyond(knob.max_srq_wr, attr->attr.max_wr) ||
	    beyond(knob.max_srq_sge, attr->attr.max_sge)) {
		errno = EINVAL;
		return NULL;
	}
	if (knob.srqs_fail || knob.max_srq == 0) {
		errno = ENOMEM;
		return NULL;
	}
	device_real(pd->context, true);
	srq = REAL(ibv_create_srq)(pd, attr);
	device_real(pd->context, false);
	if (srq == NULL)
		return NULL;
	shared = calloc(1, sizeof(*shared));
	if (shared == NULL)
		abort();
	shared->srq = srq;
	shared->max = asked; /* it may be larger, and is not to be used */
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&shareds, shared, link);
	pthread_mutex_unlock(&lock);
	return srq;
}

/* Receives that nobody will tell of. */
static void receives_forget(const void *owner)
{
	for (unsigned i = 0; i < TABLE; i++) {
		struct work *work, *next;

		for (work = LIST_FIRST(&receives[i]); work; work = next) {
			next = LIST_NEXT(work, link);
			if (work->owner != owner)
				continue;
			LIST_REMOVE(work, link);
			free(work);
		}
	}
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct shared *shared;

	pthread_mutex_lock(&lock);
	shared = FIND(&shareds, srq, srq);
	LIST_REMOVE(shared, link);
	free(shared);
	receives_forget(srq);
	pthread_mutex_unlock(&lock);
	return REAL(ibv_destroy_srq)(srq);
}

static bool too_much(const struct ibv_qp_cap *cap)
{
	return beyond(knob.max_qp_wr, cap->max_send_wr) ||
	       beyond(knob.max_qp_wr, cap->max_recv_wr) ||
	       beyond(knob.max_sge, cap->max_send_sge) ||
	       beyond(knob.max_sge, cap->max_recv_sge) ||
	       beyond(knob.max_inline, cap->max_inline_data);
}

static unsigned srq_max(struct ibv_srq *srq)
{
	unsigned max;

	pthread_mutex_lock(&lock);
	max = FIND(&shareds, srq, srq)->max;
	pthread_mutex_unlock(&lock);
	return max;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_cap asked = attr->cap;
	struct pair *pair;
	struct ibv_qp *qp;

	if ((unsigned)attr->send_cq->cqe <
	    asked.max_send_wr + (attr->srq != NULL ? srq_max(attr->srq)
						   : asked.max_recv_wr))
		BROKEN("a completion queue of %d is too short",
		       attr->send_cq->cqe);
	if (too_much(&asked) || beyond(knob.max_qp, count.qps + 1)) {
		errno = too_much(&asked) ? EINVAL : ENOMEM;
		return NULL;
	}
	device_real(pd->context, true);
	qp = REAL(ibv_create_qp)(pd, attr);
	device_real(pd->context, false);
	if (qp == NULL)
		return NULL;
	pair = calloc(1, sizeof(*pair));
	if (pair == NULL)
		abort();
	pair->sends = calloc(SENDS, sizeof(*pair->sends));
	if (pair->sends == NULL)
		abort();
	pair->qp = qp;
	if (knob.max_inline >= 0)
		attr->cap.max_inline_data = (uint32_t)knob.max_inline;
	/* That it has more than was asked for is told, and is not to be used. */
	pair->cap = asked;
	pair->cap.max_inline_data = attr->cap.max_inline_data;
	attr->cap.max_send_wr += asked.max_send_wr;
	pthread_mutex_lock(&lock);
	count.qps++;
	LIST_INSERT_HEAD(&pairs, pair, link);
	pthread_mutex_unlock(&lock);
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct pair *pair;

	pthread_mutex_lock(&lock);
	pair = FIND(&pairs, qp, qp);
	if (pair != NULL && (mask & IBV_QP_STATE) != 0 &&
	    attr->qp_state == IBV_QPS_ERR)
		pair_ends(pair);
	pthread_mutex_unlock(&lock);
	return REAL(ibv_modify_qp)(qp, attr, mask);
}

/* What @pair has in @q is not told any more; how many receives these are. */
static unsigned clean(struct queue *q, const struct pair *pair)
{
	unsigned lost = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct helds rest = STAILQ_HEAD_INITIALIZER(rest);
		struct held *held;

		while ((held = STAILQ_FIRST(&q->held[i])) != NULL) {
			if (held->wc.qp_num == pair->qp->qp_num) {
				lost += i;
				unhold(q, &q->held[i]);
				continue;
			}
			STAILQ_REMOVE_HEAD(&q->held[i], link);
			STAILQ_INSERT_TAIL(&rest, held, link);
		}
		STAILQ_CONCAT(&q->held[i], &rest);
	}
	return lost;
}

static void events_forget(const struct pair *pair)
{
	struct device *device = FIND(&devices, verbs, pair->qp->context);
	struct event *event, *next;

	for (event = STAILQ_FIRST(&device->events); event; event = next) {
		next = STAILQ_NEXT(event, link);
		if (event->qp != pair->qp)
			continue;
		STAILQ_REMOVE(&device->events, event, event, link);
		free(event);
	}
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct pair *pair;
	struct queue *q;
	unsigned lost;

	pthread_mutex_lock(&lock);
	pair = FIND(&pairs, qp, qp);
	q = FIND(&queues, cq, qp->send_cq);
	pull(q);
	for (; pair->head < pair->tail; pair->head++)
		work_check(&pair->sends[pair->head % SENDS], "send", SIZE_MAX);
	lost = clean(q, pair);
	events_forget(pair);
	receives_forget(qp);
	fprintf(stderr, "badnic: qp %u: held %u passed %u flushed %u lost %u\n",
		qp->qp_num, pair->held, pair->passed, pair->flushed,
		qp->srq != NULL ? lost : 0);
	LIST_REMOVE(pair, link);
	count.qps--;
	pthread_mutex_unlock(&lock);
	free(pair->sends);
	free(pair);
	return REAL(ibv_destroy_qp)(qp);
}
