/*
 * listener: portals, and the events of the connection manager.
 *
 * A portal listens as soon as there is a device with its address (any, for a
 * wildcard) whose memory registration succeeds; until then it tries again every
 * few seconds, and says why it does not once for each reason.  The same goes when
 * its device is pulled out.  No event tells a portal at every address of devices
 * that come and go: device.c looks.
 */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>

#define RETRY_NS (5 * SEC)
/*
 * As many as may ask while the loop stands still, and as with TCP.  Of one more the
 * connection manager says nothing: it asks again after 20 s.
 */
#define BACKLOG 1024
#define EVENTS 8u /* handled before sessions have their turn */

/* ---- events ---- */

static void on_channel(uv_poll_t *poll, int status, int events)
{
	struct iser *iser = poll->data;
	struct rdma_cm_event *event;

	shard_wake(iser->env);
	/*
	 * A request for a connection takes milliseconds: a few at a time.  The
	 * channel may go while one of them is handled.
	 */
	for (unsigned i = 0; i < EVENTS && iser->channel != NULL &&
			     rdma_get_cm_event(iser->channel, &event) == 0;
	     i++) {
		struct rdma_cm_event copy = *event;
		struct rdma_cm_id *id =
			event->listen_id != NULL ? event->listen_id : event->id;
		struct iser_cm *cm = id->context;
		uint8_t private[64];

		if (cm->early) {
			cm->event(cm, event);
			rdma_ack_cm_event(event);
			continue;
		}
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			uint8_t len =
				(uint8_t)MIN(event->param.conn.private_data_len,
					     sizeof(private));

			if (len > 0)
				memcpy(private, event->param.conn.private_data,
				       len);
			copy.param.conn.private_data = private;
			copy.param.conn.private_data_len = len;
		}
		/* Before its id is destroyed, which waits for this. */
		rdma_ack_cm_event(event);
		cm->event(cm, &copy);
	}
}

static int channel_open(struct iser *iser)
{
	int flags, rv;

	if (iser->channel != NULL)
		return 0;
	iser->channel = rdma_create_event_channel();
	if (iser->channel == NULL)
		return errno != 0 ? -errno : -ENODEV;
	flags = fcntl(iser->channel->fd, F_GETFL);
	if (flags < 0 ||
	    fcntl(iser->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		rv = -errno;
		goto err;
	}
	iser->channel_poll = calloc(1, sizeof(*iser->channel_poll));
	if (iser->channel_poll == NULL) {
		rv = -ENOMEM;
		goto err;
	}
	rv = uv_poll_init(shard_loop(iser->env), iser->channel_poll,
			  iser->channel->fd);
	if (rv < 0) {
		free(iser->channel_poll);
		goto err;
	}
	iser->channel_poll->data = iser;
	uv_poll_start(iser->channel_poll, UV_READABLE, on_channel);
	return 0;

err:
	rdma_destroy_event_channel(iser->channel);
	iser->channel = NULL;
	iser->channel_poll = NULL;
	return rv;
}

int iser__channel_take(struct iser *iser, struct rdma_cm_id *id)
{
	int rv = channel_open(iser);

	if (rv < 0)
		return rv;
	/* It waits until what the old one told is acknowledged. */
	if (id->channel != iser->channel &&
	    rdma_migrate_id(id, iser->channel) < 0)
		return errno != 0 ? -errno : -EIO;
	return 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
	free(handle);
}

void iser__channel_close(struct iser *iser)
{
	if (iser->channel == NULL)
		return;
	uv_poll_stop(iser->channel_poll);
	uv_close((uv_handle_t *)iser->channel_poll, on_poll_closed);
	rdma_destroy_event_channel(iser->channel);
	iser->channel = NULL;
	iser->channel_poll = NULL;
}

/* ---- portals ---- */

static void portal_try(struct iser_portal *p);

static void on_retry(struct env_timer *timer)
{
	portal_try(container_of(timer, struct iser_portal, retry));
}

static void portal_down(struct iser_portal *p)
{
	if (p->id != NULL)
		rdma_destroy_id(p->id);
	p->id = NULL;
	p->partly[0] = '\0';
}

/* It listens no more; tried again, with that as the reason until then. */
static void portal_lost(struct iser_portal *p, const char *why)
{
	portal_down(p);
	snprintf(p->why, sizeof(p->why), "%s", why);
	log_info("portal %s: no iSER: %s", p->name, why);
	env_timer_start(p->iser->env, &p->retry, RETRY_NS);
}

static void on_cm(struct iser_cm *cm, const struct rdma_cm_event *event)
{
	struct iser_portal *p = container_of(cm, struct iser_portal, cm);
	struct iser_device *device;

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		iser__conn_request(p, event->id, &event->param.conn);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		LIST_FOREACH (device, &p->iser->devices, link)
			if (p->id != NULL &&
			    device->rdma->verbs == p->id->verbs)
				break;
		if (device != NULL &&
		    event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
			iser__device_gone(device); /* comes back to us */
			break;
		}
		portal_lost(p, "its device or its address went");
		break;
	default:
		break;
	}
}

void iser__portals_device_gone(struct iser *iser, struct ibv_context *verbs)
{
	struct iser_portal *p;

	TAILQ_FOREACH (p, &iser->portals, link)
		if (p->id != NULL && p->id->verbs == verbs)
			portal_lost(p, "its RDMA device is gone");
}

/* It listens, but not everywhere: @why, NULL if it does.  Said once for each. */
static void portal_partly(struct iser_portal *p, const char *why)
{
	if (why == NULL)
		p->partly[0] = '\0';
	if (why == NULL || strcmp(p->partly, why) == 0)
		return;
	snprintf(p->partly, sizeof(p->partly), "%s", why);
	log_warn("portal %s: %s", p->name, why);
}

/*
 * A portal at every address has every device: one that works is enough.  0, or
 * -errno with @why, of the first that does not.
 */
static int devices_get(struct iser_portal *p, char *why, size_t why_len)
{
	struct ibv_context **list = rdma_get_devices(NULL);
	struct iser_device *device;
	unsigned n = 0, bad = 0;
	char text[240], partly[sizeof(p->partly)];
	int rv, first = -ENODEV;

	if (list == NULL) {
		rv = errno != 0 ? -errno : -ENODEV;
		snprintf(why, why_len, "an RDMA device cannot be opened: %s",
			 strerror(-rv));
		return rv;
	}
	snprintf(why, why_len, "this machine has no RDMA device");
	for (; list[n] != NULL; n++) {
		rv = iser__device_get(p->iser, list[n], &device, text,
				      sizeof(text));
		if (rv < 0 && bad++ == 0) {
			first = rv;
			snprintf(why, why_len, "%s", text);
		}
	}
	rdma_free_devices(list);
	if (bad == n)
		return first;
	snprintf(partly, sizeof(partly), "no iSER on %u of %u RDMA devices: %s",
		 bad, n, why);
	portal_partly(p, bad > 0 ? partly : NULL);
	return 0;
}

/* 0, or -errno with @why. */
static int portal_up(struct iser_portal *p, char *why, size_t why_len)
{
	struct sockaddr *address = (struct sockaddr *)&p->address;
	struct iser_device *device;
	int one = 1, rv;

	if (rdma_devices_count() == 0) {
		snprintf(why, why_len, "this machine has no RDMA device");
		return -ENODEV;
	}
	rv = channel_open(p->iser);
	if (rv < 0) {
		snprintf(why, why_len,
			 "the RDMA connection manager (rdma_ucm) is not there: "
			 "%s",
			 strerror(-rv));
		return rv;
	}
	if (rdma_create_id(p->iser->channel, &p->id, &p->cm, RDMA_PS_TCP) < 0) {
		rv = -errno;
		p->id = NULL;
		snprintf(why, why_len, "no connection manager id: %s",
			 strerror(-rv));
		return rv;
	}
	if (address->sa_family == AF_INET6)
		(void)rdma_set_option(p->id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_AFONLY, &one, sizeof(one));
	if (rdma_bind_addr(p->id, address) < 0 ||
	    rdma_listen(p->id, BACKLOG) < 0) {
		rv = -errno;
		if (rv == -ENODEV || rv == -EADDRNOTAVAIL)
			snprintf(why, why_len,
				 "no RDMA device has its address");
		else if (rv == -EADDRINUSE)
			snprintf(why, why_len,
				 "its port is taken: another target serves "
				 "iSER there, or the device is software iWARP, "
				 "which shares ports with TCP: basalt portal "
				 "set --transport iser leaves it this one");
		else
			snprintf(why, why_len, "cannot listen: %s",
				 strerror(-rv));
		goto err;
	}
	/* Say now what would fail at the first login. */
	if (p->id->verbs != NULL)
		rv = iser__device_get(p->iser, p->id->verbs, &device, why,
				      why_len);
	else
		rv = devices_get(p, why, why_len);
	if (rv < 0)
		goto err;
	return 0;

err:
	portal_down(p);
	return rv;
}

bool iser__portals_partly(const struct iser *iser)
{
	const struct iser_portal *p;

	TAILQ_FOREACH (p, &iser->portals, link)
		if (p->partly[0] != '\0')
			return true;
	return false;
}

void iser__portals_devices(struct iser *iser)
{
	char why[sizeof(((struct iser_portal *)0)->why)] = "";
	struct iser_portal *p;

	TAILQ_FOREACH (p, &iser->portals, link) {
		if (p->id == NULL || p->id->verbs != NULL ||
		    devices_get(p, why, sizeof(why)) == 0)
			continue;
		portal_lost(p, why);
	}
}

static void portal_try(struct iser_portal *p)
{
	char why[sizeof(p->why)] = "";
	int rv = portal_up(p, why, sizeof(why));

	if (rv == 0) {
		log_info("portal %s: listening for iSER", p->name);
		p->why[0] = '\0';
		return;
	}
	if (strcmp(why, p->why) != 0) {
		snprintf(p->why, sizeof(p->why), "%s", why);
		log_info("portal %s: no iSER: %s", p->name, why);
	}
	env_timer_start(p->iser->env, &p->retry, RETRY_NS);
}

static struct iser_portal *portal_find(const struct iser *iser, unsigned number)
{
	struct iser_portal *p;

	TAILQ_FOREACH (p, &iser->portals, link)
		if (p->number == number)
			return p;
	return NULL;
}

int iser_listen(struct iser *iser, unsigned portal,
		const struct sockaddr *address, bool alone)
{
	struct iser_portal *p;

	if (iser->closing)
		return -ESHUTDOWN;
	if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
		return -EINVAL;
	p = portal_find(iser, portal);
	if (p != NULL) {
		p->alone = alone;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return -ENOMEM;
	p->iser = iser;
	p->number = portal;
	p->alone = alone;
	p->cm.event = on_cm;
	p->retry.cb = on_retry;
	memcpy(&p->address, address,
	       address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in));
	address_text(&p->address, true, p->name);
	TAILQ_INSERT_TAIL(&iser->portals, p, link);
	iser__devices_watch(iser);
	portal_try(p);
	return 0;
}

static void portal_free(struct iser_portal *p)
{
	env_timer_stop(p->iser->env, &p->retry);
	portal_down(p);
	TAILQ_REMOVE(&p->iser->portals, p, link);
	free(p);
}

int iser_unlisten(struct iser *iser, unsigned portal)
{
	struct iser_portal *p = portal_find(iser, portal);

	if (p == NULL)
		return -ENOENT;
	portal_free(p);
	return 0;
}

bool iser_listening(const struct iser *iser, unsigned portal, char *why,
		    size_t why_len)
{
	const struct iser_portal *p = portal_find(iser, portal);

	snprintf(why, why_len, "%s", p == NULL ? "off" : p->why);
	return p != NULL && p->id != NULL;
}

void iser__portals_close(struct iser *iser)
{
	struct iser_portal *p, *next;

	TAILQ_FOREACH_SAFE (p, &iser->portals, link, next)
		portal_free(p);
}
