/*
 * tcp_int: one TCP connection of the TCP datamover, shared by its three files:
 * datamover_tcp.c (listening, life, the calls down), tcp_rx.c, tcp_tx.c.
 */
#ifndef BASALT_ISCSI_TCP_INT_H
#define BASALT_ISCSI_TCP_INT_H

#include "base/crc.h"
#include "base/shard.h"
#include "iscsi/iscsi_int.h"

#define TCP_LOGIN_BUF (16u << 10)
#define TCP_FULL_BUF (64u << 10)
/* From here on payload is read straight into its pages, all of it. */
#define TCP_DIRECT_MIN (16u << 10)
/* After a PDU of that size so many headers are read alone. */
#define TCP_ALONE_PDUS 64u
#define TCP_SLOTS 64u
#define TCP_IOV 256u
#define TCP_SEND_MS 30000u
/*
 * So long data that finds no place is not read, and all that lies behind it waits,
 * pings and task management, too: Linux takes 5 s of silence for an end.
 */
#define TCP_LATER_NS (3 * SEC)
/* Accepting failed: how soon it is tried again, and at the latest. */
#define TCP_RETRY_NS (100 * MSEC)
#define TCP_RETRY_NS_MAX (2 * SEC)
/* Data-Out that belongs to nothing, and none that does: no accident. */
#define TCP_STRAY_MAX 4096u

enum tx_kind { TX_SEND, TX_PUT, TX_R2T };

/* What waits to be sent: lies in the impl of a dm_send or dm_data. */
struct tx_item {
	TAILQ_ENTRY(tx_item) link;
	void *owner; /* struct dm_send or dm_data */
	int status;
	uint8_t kind;
	bool header_digest, data_digest, queued;
};
TAILQ_HEAD(tx_queue, tx_item);

struct tcp_send {
	struct tx_item item;
};

struct tcp_data {
	struct tx_item item;
	uint32_t done; /* put: bytes that are in slots; get: bytes received */
	uint32_t sn; /* next DataSN, out or in */
	uint32_t ttt;
	TAILQ_ENTRY(tcp_data) bucket;
	uint8_t r2t[ISCSI_BHS_LEN];
};

/* One PDU on its way: what sendmsg needs to stay in place. */
struct tx_slot {
	struct tx_item *item; /* NULL: nobody to tell */
	bool last; /* of its item */
	uint8_t head[ISCSI_BHS_LEN + 4];
	uint8_t tail[8];
	unsigned head_len, tail_len;
	const uint8_t *flat;
	struct sgl *sgl; /* shared */
	size_t offset, len;
};

enum rx_state { RX_HEADER, RX_LATER, RX_DATA, RX_TAIL };

/* Of the poll handle: libuv may be asked to close it only while it is open. */
enum tcp_handle { HANDLE_CLOSED, HANDLE_CLOSING, HANDLE_OPEN };

struct tcp_conn {
	struct dm_conn dm;
	uv_poll_t poll;
	enum tcp_handle handle;
	int fd, events;
	bool lost, closing, full, want_write;
	int attach_status; /* the loop it moved to did not take it: why */
	unsigned pdu_ms;
	struct dm_keys keys;
	bool header_digest, data_digest; /* in force now */
	struct env_task turn; /* deferred: flush, cancel */
	struct env_timer timer;
	bool timer_on;

	/* receiving */
	enum rx_state rx;
	uint8_t *buf;
	size_t room, start, end;
	unsigned alone; /* headers still to be read without what follows */
	uint8_t header[ISCSI_BHS_LEN + ISCSI_AHS_MAX];
	struct dm_pdu pdu;
	uint32_t data_got;
	struct sgl *sgl; /* where the data goes: shared; or */
	size_t sgl_offset;
	uint8_t *flat; /* own; or nowhere */
	struct dm_data *get;
	bool stray;
	unsigned strays; /* since the last Data-Out of a task */
	uint64_t strays_due; /* bytes asked for by tasks that ended since */
	uint64_t pdu_since_ns; /* 0: between PDUs */
	uint64_t put_off_ns; /* in RX_LATER: since when */
	uint64_t waited_ns; /* what lies in the socket, for data before it */

	/* sending */
	struct tx_queue queue, cancelled;
	struct tx_slot slots[TCP_SLOTS];
	unsigned slots_first, slots_count;
	size_t head_sent; /* bytes of the first slot that are gone */
	uint64_t tx_since_ns; /* no progress since; 0: nothing to send */
	bool tx_full; /* the socket took no more */
	uint32_t ttt_last;
	unsigned gets_count;
	TAILQ_HEAD(get_list, tcp_data) gets[ISCSI_ITT_BUCKETS];
};

static inline struct tcp_conn *tcp_of(struct dm_conn *dm)
{
	return container_of(dm, struct tcp_conn, dm);
}

static inline struct tcp_data *tcp_data_of(struct dm_data *data)
{
	return (struct tcp_data *)data->impl;
}

static inline struct dm_data *dm_data_of(struct tcp_data *td)
{
	return (struct dm_data *)((char *)td - offsetof(struct dm_data, impl));
}

/* Neither lost, nor closing, nor off its loop on the way to another. */
static inline bool tcp_alive(const struct tcp_conn *conn)
{
	return conn->handle == HANDLE_OPEN && !conn->lost;
}

void iscsi__tcp_lost(struct tcp_conn *conn, int status, const char *why);
/* Lost as its socket says @error, an errno. */
void iscsi__tcp_failed(struct tcp_conn *conn, int error);
void iscsi__tcp_poll(struct tcp_conn *conn);
void iscsi__tcp_timer(struct tcp_conn *conn);
/* tcp_rx.c */
void iscsi__tcp_receive(struct tcp_conn *conn);
/* In RX_LATER: ask again where the data shall lie, and go on. */
void iscsi__tcp_land_again(struct tcp_conn *conn);
void iscsi__tcp_rx_fini(struct tcp_conn *conn);
struct dm_data *iscsi__tcp_get_find(struct tcp_conn *conn, uint32_t itt,
				    uint32_t ttt);
void iscsi__tcp_get_remove(struct tcp_conn *conn, struct dm_data *get);
/* tcp_tx.c */
/* Is its response, if it has one, part of the last Data-In? */
bool iscsi__tcp_collapses(const struct dm_data *data);
void iscsi__tcp_flush(struct tcp_conn *conn);
void iscsi__tcp_tx_cancel(struct tcp_conn *conn);
void iscsi__tcp_finish(struct tx_item *item, int status);

#endif
