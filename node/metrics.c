/*
 * metrics: all that is counted, in the Prometheus text format, for `basalt metrics` and,
 * if configured, over HTTP.  libmicrohttpd brings no thread of its own: its
 * epoll descriptor hangs in the loop, so gauges are read where they live.
 */
#define LOG_ROOM LOG_NODE
#include "base/copied.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"
#include "node/node_int.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HTTP_CONNS_MAX 32u
#define HTTP_IDLE_S 10u /* without a byte */
#define HTTP_WHOLE_NS (10 * SEC) /* for all of it, however it trickles */
#define HTTP_CROWD 16u /* beyond so many, those that take longer go */
#define HTTP_CROWD_NS SEC
#define HTTP_AGAIN_NS (100 * MSEC) /* one that came could not be taken */

/* A connection: it is there for one request. */
struct http_peer {
	struct MHD_Connection *conn; /* NULL: nobody */
	uint64_t since_ns;
	bool cut; /* told to end, and not counted any more */
};

/* A request whose text is made. */
struct scrape {
	struct metrics *m;
	struct MHD_Connection *conn;
	struct node_metrics made;
	bool making;
	TAILQ_ENTRY(scrape) link;
};

struct metrics {
	struct node *node;
	struct MHD_Daemon *http;
	uv_poll_t poll;
	struct env_timer timer; /* libmicrohttpd's time-outs, and ours */
	struct http_peer peers[HTTP_CONNS_MAX];
	unsigned peers_count;
	TAILQ_HEAD(, scrape) scrapes;
};

/* ---- what node itself counts ---- */

static struct node *the_node; /* one a process */

static uint64_t read_uptime(struct counter *c)
{
	return (env_now(the_node->env) - the_node->started_ns) / SEC;
}

static uint64_t read_arena_used(struct counter *c)
{
	size_t pages = 0;

	for (int i = 0; i < PAGE_CLASSES; i++)
		pages += arena_used(the_node->arena, (enum page_class)i);
	return pages * PAGE_BYTES;
}

static uint64_t read_arena_bytes(struct counter *c)
{
	return arena_pages(the_node->arena) * (uint64_t)PAGE_BYTES;
}

static uint64_t disks_sum(uint64_t (*of)(const struct lsom_disk_info *info))
{
	struct lsom_disk_info info;
	struct node_disk *d;
	uint64_t sum = 0;

	TAILQ_FOREACH (d, &the_node->disks, link)
		if (d->state == NODE_DISK_ONLINE) {
			lsom_disk_info(d->disk, &info);
			sum += of(&info);
		}
	return sum;
}

static uint64_t info_raw(const struct lsom_disk_info *info)
{
	return info->raw_bytes;
}

static uint64_t info_usable(const struct lsom_disk_info *info)
{
	return info->usable_bytes;
}

static uint64_t info_used(const struct lsom_disk_info *info)
{
	return info->used_bytes;
}

static uint64_t info_kept(const struct lsom_disk_info *info)
{
	return info->kept_bytes;
}

static uint64_t info_uncovered(const struct lsom_disk_info *info)
{
	return info->uncovered_bytes;
}

static uint64_t info_failed(const struct lsom_disk_info *info)
{
	return info->state == LSOM_DISK_FAILED;
}

static uint64_t info_free_segments(const struct lsom_disk_info *info)
{
	return info->segments_free;
}

static uint64_t read_raw(struct counter *c)
{
	return disks_sum(info_raw);
}

static uint64_t read_usable(struct counter *c)
{
	return disks_sum(info_usable);
}

static uint64_t read_used(struct counter *c)
{
	return disks_sum(info_used);
}

static uint64_t read_kept(struct counter *c)
{
	return disks_sum(info_kept);
}

static uint64_t read_uncovered(struct counter *c)
{
	return disks_sum(info_uncovered);
}

static uint64_t read_free_segments(struct counter *c)
{
	return disks_sum(info_free_segments);
}

static uint64_t read_failed(struct counter *c)
{
	uint64_t n = disks_sum(info_failed);
	struct node_disk *d;

	/*
	 * As health has it: one that is just tried again is out as well, or that
	 * does not answer while it is opened or closed.
	 */
	TAILQ_FOREACH (d, &the_node->disks, link)
		n += d->state == NODE_DISK_FAILED ||
		     d->state == NODE_DISK_CLOSED ||
		     (d->state == NODE_DISK_OPENING && d->again) ||
		     (d->state != NODE_DISK_ONLINE && !d->erase &&
		      node__disk_silent_ns(d) >= LSOM_SILENT_NS);
	return n;
}

static void count_session(const struct iscsi_session_info *info, void *arg)
{
	*(uint64_t *)arg += 1;
}

static uint64_t read_sessions(struct counter *c)
{
	uint64_t n = 0;

	if (the_node->iscsi != NULL && the_node->state == NODE_UP)
		iscsi_session_each(the_node->iscsi, count_session, &n);
	return n;
}

static uint64_t read_revision(struct counter *c)
{
	struct cmmds_info info;

	if (the_node->cmmds == NULL)
		return 0;
	cmmds_info(the_node->cmmds, &info);
	return info.revision;
}

static uint64_t read_health(struct counter *c)
{
	return node__health_worst();
}

static struct counter gauges[] = {
	{ .name = "basalt_node_uptime_seconds",
	  .help = "since basaltd started",
	  .read = read_uptime },
	{ .name = "basalt_node_health_level",
	  .help = "worst check: 0 ok, 1 info, 2 warning, 3 bad",
	  .read = read_health },
	{ .name = "basalt_node_arena_bytes",
	  .help = "payload memory",
	  .read = read_arena_bytes },
	{ .name = "basalt_node_arena_used_bytes",
	  .help = "payload memory in use",
	  .read = read_arena_used },
	{ .name = "basalt_node_disk_raw_bytes",
	  .help = "of all disks that are open",
	  .read = read_raw },
	{ .name = "basalt_node_disk_usable_bytes",
	  .help = "raw less the cleaning reserve",
	  .read = read_usable },
	{ .name = "basalt_node_disk_used_bytes",
	  .help = "live blocks",
	  .read = read_used },
	{ .name = "basalt_node_disk_kept_bytes",
	  .help = "reserved by policies, not used yet",
	  .read = read_kept },
	{ .name = "basalt_node_disk_uncovered_bytes",
	  .help = "of these, what the disks have no room for",
	  .read = read_uncovered },
	{ .name = "basalt_node_disk_segments_free",
	  .help = "segments ready to be written",
	  .read = read_free_segments },
	{ .name = "basalt_node_disks_failed",
	  .help = "disks out of service",
	  .read = read_failed },
	{ .name = "basalt_node_sessions",
	  .help = "iSCSI sessions now, discovery included",
	  .read = read_sessions },
	{ .name = "basalt_node_directory_revision",
	  .help = "changes applied to the directory",
	  .read = read_revision },
};

void node__metrics_register(struct node *node)
{
	the_node = node;
	copied_register();
	for (size_t i = 0; i < ARRAY_LEN(gauges); i++)
		counter_register(&gauges[i]);
}

/* ---- the text ---- */

void node__print(struct node_text *text, const char *fmt, ...)
{
	va_list ap;
	size_t len;
	char *more;

	while (!text->failed) {
		va_start(ap, fmt);
		len = (size_t)vsnprintf(text->data + text->len,
					text->room - text->len, fmt, ap);
		va_end(ap);
		if (len < text->room - text->len) {
			text->len += len;
			return;
		}
		more = realloc(text->data, 2 * text->room + len + 1);
		text->failed = more == NULL;
		if (more == NULL)
			return;
		text->data = more;
		text->room = 2 * text->room + len + 1;
	}
}

static void text_free(struct node_text *text)
{
	free(text->data);
	memset(text, 0, sizeof(*text));
}

static void text_add(struct counter *counter, void *arg)
{
	size_t len = strlen(counter->name);
	bool total = len > 6 && strcmp(counter->name + len - 6, "_total") == 0;

	node__print(arg, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", counter->name,
		    counter->help ? counter->help : "", counter->name,
		    total ? "counter" : "gauge", /* one that may go down */
		    counter->name, (unsigned long long)counter_value(counter));
}

static void text_times(struct histogram *histogram, void *arg)
{
	struct histogram_value v;
	uint64_t count = 0;

	histogram_read(histogram, &v);
	node__print(arg, "# HELP %s %s\n# TYPE %s histogram\n", histogram->name,
		    histogram->help, histogram->name);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
		count += v.bucket[i];
		node__print(arg, "%s_bucket{le=\"%.9g\"} %llu\n",
			    histogram->name,
			    (double)histogram_bound(i) / (double)SEC,
			    (unsigned long long)count);
	}
	node__print(arg,
		    "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9f\n%s_count %llu\n",
		    histogram->name, (unsigned long long)v.count,
		    histogram->name, (double)v.sum_ns / (double)SEC,
		    histogram->name, (unsigned long long)v.count);
}

static void texts_free(struct node_metrics *m)
{
	text_free(&m->all);
	for (unsigned i = 0; i < NODE_VDISK_FAMILIES; i++)
		text_free(&m->families[i]);
}

static void make_end(struct node_metrics *m, int status)
{
	if (status == 0 && m->all.failed)
		status = -ENOMEM;
	if (status == 0) {
		m->text = m->all.data;
		memset(&m->all, 0, sizeof(m->all));
	}
	texts_free(m);
	m->cb(m, status);
}

static bool on_vdisk(const struct cmmds_entry *e, void *arg)
{
	struct node_metrics *m = arg;

	if (m->families[0].len == 0)
		node__vdisk_heads_put(m->families);
	node__vdisk_put(m->families, m->node, (const void *)e->message);
	return true;
}

/* One family of them, which are long, behind what there is. */
static void family_join(struct node_metrics *m, struct node_text *family)
{
	m->all.failed |= family->failed;
	if (family->len > 0)
		node__print(&m->all, "%s", family->data);
	text_free(family);
}

static bool make_part(struct node_parts *parts, unsigned max)
{
	struct node_metrics *m =
		container_of(parts, struct node_metrics, parts);
	int rv;

	if (!m->walked) {
		rv = node__walk(m->node, &m->walk, CMMDS_VDISK, max, on_vdisk,
				m);
		m->walked = rv == 0;
		if (rv >= 0)
			return true;
		make_end(m, rv);
		return false;
	}
	family_join(m, &m->families[m->joined++]);
	if (m->joined < NODE_VDISK_FAMILIES)
		return true;
	make_end(m, 0);
	return false;
}

/* Now all that there are few of. */
static void on_look(struct node_look *look)
{
	struct node_metrics *m = container_of(look, struct node_metrics, look);

	counter_each(text_add, &m->all);
	histogram_each(text_times, &m->all);
	node__families_put(&m->all, m->node);
	if (m->node->state != NODE_UP || m->all.failed) {
		make_end(m, 0);
		return;
	}
	m->parts.part = make_part;
	node__parts_start(m->node, &m->parts);
}

void node__metrics_make(struct node *node, struct node_metrics *metrics,
			void (*cb)(struct node_metrics *metrics, int status))
{
	memset(metrics, 0, sizeof(*metrics));
	metrics->node = node;
	metrics->cb = cb;
	node__look(node, &metrics->look, on_look);
}

void node__metrics_drop(struct node_metrics *metrics)
{
	if (metrics->parts.part != NULL)
		node__parts_stop(metrics->node, &metrics->parts);
	else
		node__look_drop(&metrics->look);
	texts_free(metrics);
}

/* ---- over HTTP ---- */

static enum MHD_Result answer(struct MHD_Connection *conn, unsigned status,
			      char *text, enum MHD_ResponseMemoryMode mode,
			      const char *type)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(text), text, mode);
	enum MHD_Result rv;

	if (response == NULL) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	rv = MHD_queue_response(conn, status, response);
	MHD_destroy_response(response);
	return rv;
}

static enum MHD_Result refuse(struct MHD_Connection *conn, unsigned status,
			      char *why)
{
	return answer(conn, status, why, MHD_RESPMEM_PERSISTENT, "text/plain");
}

/* libmicrohttpd comes back to it in the next turn. */
static void scrape_resume(struct scrape *s)
{
	s->making = false;
	MHD_resume_connection(s->conn);
	env_timer_start(s->m->node->env, &s->m->timer, 0);
}

static void on_made(struct node_metrics *made, int status)
{
	scrape_resume(container_of(made, struct scrape, made));
}

/* The connection is left alone until the text is there. */
static enum MHD_Result scrape_start(struct metrics *m,
				    struct MHD_Connection *conn,
				    struct scrape **out)
{
	struct scrape *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return refuse(conn, MHD_HTTP_SERVICE_UNAVAILABLE,
			      "no memory: ask again\n");
	s->m = m;
	s->conn = conn;
	s->making = true;
	TAILQ_INSERT_TAIL(&m->scrapes, s, link);
	*out = s;
	MHD_suspend_connection(conn);
	node__metrics_make(m->node, &s->made, on_made);
	return MHD_YES;
}

static enum MHD_Result scrape_answer(struct scrape *s)
{
	char *text = s->made.text;

	if (s->making)
		return MHD_YES;
	if (text == NULL)
		return refuse(s->conn, MHD_HTTP_SERVICE_UNAVAILABLE,
			      "no memory, or basaltd ends: ask again\n");
	s->made.text = NULL;
	return answer(s->conn, MHD_HTTP_OK, text, MHD_RESPMEM_MUST_FREE,
		      "text/plain; version=0.0.4");
}

static enum MHD_Result on_http(void *arg, struct MHD_Connection *conn,
			       const char *url, const char *method,
			       const char *version, const char *data,
			       size_t *data_len, void **state)
{
	struct scrape *s = *state;

	if (s != NULL)
		return scrape_answer(s);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return refuse(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
	if (strcmp(url, "/metrics") != 0)
		return refuse(conn, MHD_HTTP_NOT_FOUND, "see /metrics\n");
	return scrape_start(arg, conn, (struct scrape **)state);
}

static void on_http_over(void *arg, struct MHD_Connection *conn, void **state,
			 enum MHD_RequestTerminationCode code)
{
	struct scrape *s = *state;

	if (s == NULL)
		return;
	assert(!s->making);
	TAILQ_REMOVE(&s->m->scrapes, s, link);
	free(s->made.text);
	free(s);
	*state = NULL;
}

/* ---- slow peers ---- */

static void on_peer(void *arg, struct MHD_Connection *conn, void **context,
		    enum MHD_ConnectionNotificationCode code)
{
	struct metrics *m = arg;
	struct http_peer *p = *context;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		assert(p != NULL && p->conn == conn);
		m->peers_count -= !p->cut;
		memset(p, 0, sizeof(*p));
		return;
	}
	/* One is free: libmicrohttpd takes no more than these. */
	p = m->peers;
	while (p < m->peers + HTTP_CONNS_MAX - 1 && p->conn != NULL)
		p++;
	assert(p->conn == NULL);
	p->conn = conn;
	p->since_ns = env_now(m->node->env);
	m->peers_count++;
	*context = p;
}

static struct http_peer *peer_oldest(struct metrics *m)
{
	struct http_peer *oldest = NULL;

	for (struct http_peer *p = m->peers; p < m->peers + HTTP_CONNS_MAX; p++)
		if (p->conn != NULL && !p->cut &&
		    (oldest == NULL || p->since_ns < oldest->since_ns))
			oldest = p;
	return oldest;
}

/*
 * libmicrohttpd's own limit is one between two bytes.  It closes what is shut
 * down here, as if the peer had done it.
 */
static void peers_cut(struct metrics *m)
{
	uint64_t now = env_now(m->node->env);
	struct http_peer *p;

	while ((p = peer_oldest(m)) != NULL &&
	       now - p->since_ns >= (m->peers_count > HTTP_CROWD
					     ? HTTP_CROWD_NS
					     : HTTP_WHOLE_NS)) {
		shutdown(MHD_get_connection_info(
				 p->conn, MHD_CONNECTION_INFO_CONNECTION_FD)
				 ->connect_fd,
			 SHUT_RDWR);
		p->cut = true;
		m->peers_count--;
	}
}

/* ---- in the loop ---- */

static unsigned conns(const struct metrics *m)
{
	return MHD_get_daemon_info(m->http, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
		->num_connections;
}

/*
 * At its limit it listens no more, until a run after the one that saw a
 * connection end: nothing but the timer would bring that about.
 */
static void http_run(struct metrics *m)
{
	bool had = conns(m) > 0;
	MHD_UNSIGNED_LONG_LONG ms;
	uint64_t wait_ns = SEC;

	peers_cut(m);
	MHD_run(m->http);
	if (MHD_get_timeout(m->http, &ms) == MHD_YES)
		wait_ns = MIN(wait_ns, (ms + 1) * MSEC);
	if (had || conns(m) > 0)
		env_timer_start(m->node->env, &m->timer, wait_ns);
	else
		env_timer_stop(m->node->env, &m->timer);
}

/*
 * Where it can take nobody, for want of descriptors or memory, and has nobody who
 * could end, libmicrohttpd listens on: it would be called in each turn.
 */
static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct metrics *m = poll->data;
	bool had = conns(m) > 0;

	shard_wake(m->node->env);
	http_run(m);
	if (had || conns(m) > 0)
		return;
	uv_poll_stop(&m->poll);
	env_timer_start(m->node->env, &m->timer, HTTP_AGAIN_NS);
}

static void on_timer(struct env_timer *timer)
{
	struct metrics *m = container_of(timer, struct metrics, timer);

	uv_poll_start(&m->poll, UV_READABLE, on_poll);
	http_run(m);
}

static int http_open(struct node *node, const struct config_portal *portal,
		     struct metrics **out)
{
	struct sockaddr_storage address;
	int rv = config_portal_address(portal, &address);
	const union MHD_DaemonInfo *info;
	struct metrics *m;

	if (rv < 0)
		return rv;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return -ENOMEM;
	m->node = node;
	m->timer.cb = on_timer;
	TAILQ_INIT(&m->scrapes);
	errno = 0;
	m->http = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
			(address.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0),
		0, NULL, NULL, on_http, m, MHD_OPTION_SOCK_ADDR,
		(struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT,
		HTTP_CONNS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S,
		MHD_OPTION_NOTIFY_CONNECTION, on_peer, m,
		MHD_OPTION_NOTIFY_COMPLETED, on_http_over, m, MHD_OPTION_END);
	if (m->http == NULL) {
		rv = errno != 0 ? -errno : -EADDRINUSE;
		free(m);
		return rv;
	}
	info = MHD_get_daemon_info(m->http, MHD_DAEMON_INFO_EPOLL_FD);
	rv = uv_poll_init(shard_loop(node->env), &m->poll, info->epoll_fd);
	if (rv < 0) {
		MHD_stop_daemon(m->http);
		free(m);
		return rv;
	}
	m->poll.data = m;
	uv_poll_start(&m->poll, UV_READABLE, on_poll);
	log_info("metrics at http://%s/metrics", portal->text);
	*out = m;
	return 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct metrics *m = handle->data;

	MHD_stop_daemon(m->http);
	free(m);
}

static void metrics_try(struct env_timer *timer)
{
	struct node *node = container_of(timer, struct node, metrics_look);
	const struct config_portal *portal = &node->config->metrics;
	int rv = http_open(node, portal, &node->metrics);
	char why[120];

	node__listen_why(portal, rv, why, sizeof(why));
	if (rv < 0 && rv != node->metrics_status)
		log_error("metrics %s: cannot listen: %s", portal->text, why);
	node->metrics_status = rv;
	if (rv < 0)
		env_timer_start(node->env, timer, NODE_LOOK_NS);
}

void node__metrics_start(struct node *node)
{
	if (node->config->metrics.text[0] == '\0')
		return;
	node->metrics_look.cb = metrics_try;
	metrics_try(&node->metrics_look);
}

void node__metrics_stop(struct node *node)
{
	struct metrics *m = node->metrics;
	struct scrape *s;

	env_timer_stop(node->env, &node->metrics_look);
	node->metrics = NULL;
	if (m == NULL)
		return;
	/* libmicrohttpd ends them, but none that is left alone. */
	TAILQ_FOREACH (s, &m->scrapes, link)
		if (s->making) {
			node__metrics_drop(&s->made);
			scrape_resume(s);
		}
	env_timer_stop(node->env, &m->timer);
	uv_close((uv_handle_t *)&m->poll, on_poll_closed);
}
