/*
 * datamover: the seam between an iSCSI session and what carries its PDUs
 * (RFC 5047; RFC 7145 section 3).  TCP (datamover_tcp.c) and iSER (iser/) are
 * two implementations; a third needs no change above this line.
 *
 * The session is a state machine on its shard's loop.  It calls dm_ops down;
 * the datamover calls dm_up up.  A call down never calls up before it returns,
 * but for notice_keys() and land_again(); a call up may call down, terminate()
 * included, and the datamover looks at its state again when it comes back.
 *
 *	down			TCP			iSER
 *	send_control		PDU into sendmsg	SEND (with invalidate)
 *	put_data		Data-In PDUs		RDMA WRITE
 *	get_data		R2T, then Data-Out	RDMA READ
 *	notice_keys		digests, lengths	RDSLs, depth
 *	enable			digests from here on	receives posted first
 *	task_done		forget R2Ts		forget READs
 *	land_again		read on			-
 *	detach, attach		the socket		completions, events
 *	terminate		close			disconnect
 *
 * Payload never leaves its sgl: TCP receives straight into the pages that the
 * session named in dm_up.land() or get_data, sends straight out of them.
 */
#ifndef BASALT_ISCSI_DATAMOVER_H
#define BASALT_ISCSI_DATAMOVER_H

#include "base/env.h"
#include "base/sgl.h"
#include "iscsi/pdu.h"

#include <sys/socket.h>

struct dm_conn; /* the datamover's connection; it embeds this */
struct iscsi_conn; /* the session's */

/*
 * What came with a SCSI Command beside the PDU: where the initiator's buffers
 * can be reached (iSER: the STags of RFC 7145 section 9.2).  The session keeps
 * it with the task, does not look at it, and gives it back with what it sends
 * for that task.
 */
struct dm_stags {
	uint64_t read_base, write_base;
	uint32_t read, write; /* remote keys */
	bool read_valid, write_valid;
	uint32_t immediate_len; /* write_base lies behind the immediate data */
};

/* A control-type PDU that came in.  All borrowed for the call. */
struct dm_pdu {
	const uint8_t *bhs; /* ISCSI_BHS_LEN bytes */
	const uint8_t *ahs;
	unsigned ahs_len;
	/*
	 * Data of a SCSI Command (immediate) or unsolicited Data-Out: an sgl;
	 * where dm_up.land() gave one, these bytes lie in it already.
	 */
	struct sgl *sgl;
	/* Data of every other PDU: flat. */
	const uint8_t *data;
	uint32_t data_len; /* without padding */
	bool data_digest_bad;
	const struct dm_stags *stags; /* of a SCSI Command; NULL: none */
};

/* A control PDU to send: embed it, keep it until @cb. */
struct dm_send {
	uint8_t bhs[ISCSI_BHS_LEN]; /* lengths are filled in below */
	const void *data; /* flat; or */
	struct sgl *sgl; /* shared */
	uint32_t data_len;
	/*
	 * A SCSI Response: the task's, whose STag is used no more from here on
	 * and may be invalidated.  Otherwise NULL.
	 */
	const struct dm_stags *stags;
	void (*cb)(struct dm_send *send, int status); /* gone to the wire */
	/* private */
	TAILQ_ENTRY(dm_send) link;
	void *impl[8];
};

/*
 * Payload of one task, either way.  @task_offset is the position in the task's
 * buffer of byte @sgl_offset of @sgl, @len bytes.
 */
struct dm_data {
	uint32_t itt;
	const struct dm_stags *stags; /* the task's, kept until @cb */
	uint64_t lun; /* as in the BHS */
	struct sgl *sgl;
	size_t sgl_offset, len;
	uint32_t task_offset;
	/*
	 * The first DataSN (put_data) or the R2TSN (get_data): both count from
	 * 0 over a command.  iSER does not use it.
	 */
	uint32_t sn;
	/*
	 * put_data: the SCSI Response that follows.  TCP may collapse it into
	 * the last Data-In if it has no sense data; iSER chains it behind the
	 * RDMA WRITE.  Its StatSN was assigned by the session.  Its own cb runs
	 * as well.  NULL: none yet.
	 */
	struct dm_send *response;
	/*
	 * 0; -ECANCELED; get_data also -EPROTO: the data came out of sequence,
	 * what is still to come of it will be discarded: the task has failed,
	 * the connection goes on.
	 */
	void (*cb)(struct dm_data *data, int status);
	/* private */
	struct dm_conn *conn;
	TAILQ_ENTRY(dm_data) link;
	void *impl[16];
};

/* What was negotiated, for the datamover's own use. */
struct dm_keys {
	bool header_digest, data_digest;
	uint32_t max_send_data_len; /* peer's MaxRecvDataSegmentLength */
	uint32_t max_recv_data_len; /* ours */
	uint32_t max_burst, first_burst;
	uint16_t max_outstanding_r2t;
	bool initial_r2t, immediate_data;
	uint32_t window; /* commands the session may have outstanding */
};

struct dm_ops {
	const char *name; /* "tcp", "iser" */
	bool rdma;
	/*
	 * Data of a PDU that the initiator has room for in full feature phase,
	 * whatever was negotiated; 0: as negotiated.
	 */
	uint32_t send_data_max;
	/*
	 * Commands that the initiator has room for the answers of, whatever the
	 * window may be; 0: any number.  Answers that wait in dm_conn.unsent
	 * take of it.
	 */
	uint32_t window_max;
	void (*send_control)(struct dm_conn *conn, struct dm_send *send);
	void (*put_data)(struct dm_conn *conn, struct dm_data *data);
	void (*get_data)(struct dm_conn *conn, struct dm_data *data);
	/*
	 * Resources for full feature phase, before the final login response:
	 * 0 or -ENOMEM (then login fails with 0302).  Once more, and then
	 * always 0, if the initiator declares another max_send_data_len later.
	 * The first time it may call lost() before it returns.
	 */
	int (*notice_keys)(struct dm_conn *conn, const struct dm_keys *keys);
	/* Send the final login response and enter full feature phase. */
	void (*enable)(struct dm_conn *conn, struct dm_send *response);
	/*
	 * Forget what was asked for: the task's get_data that are left end with
	 * -ECANCELED, once nobody writes to their memory any more; later
	 * Data-Out for it is discarded.  A put_data runs to its end: it carries
	 * a response, and a task with one queued is past aborting.
	 */
	void (*task_done)(struct dm_conn *conn, uint32_t itt);
	/*
	 * What land() waits for may be there: it is asked again, and more may go
	 * up, before this returns.  NULL where dm_conn.later_ns is never set.
	 */
	void (*land_again)(struct dm_conn *conn);
	/*
	 * Close.  Every dm_send and dm_data in flight gets its callback, then
	 * dm_up.closed() runs, last.
	 */
	void (*terminate)(struct dm_conn *conn);
	/*
	 * To another shard, once, during login, when nothing of the session's
	 * side is in flight.  detach() takes it off its loop: nothing goes up
	 * any more, then dm_up.detached() runs, later, from where the memory may
	 * be handed over; after terminate() closed() does instead.  attach(), on
	 * the loop of @to (or of the same shard again), goes on there: what came
	 * meanwhile, a loss too, goes up on a later turn of that loop.
	 */
	void (*detach)(struct dm_conn *conn);
	void (*attach)(struct dm_conn *conn, struct env *to);
};

struct dm_up {
	/*
	 * The header of a SCSI Command or an unsolicited Data-Out is in and
	 * @data_len bytes of data follow: where shall they land?  Returns the
	 * sgl and sets *@sgl_offset (the datamover shares it until the PDU is
	 * complete), or NULL: drop them (the PDU is still delivered, sgl NULL).
	 * Or, before dm_conn.later_ns, NULL with dm_conn.later set: nothing is
	 * read until land_again(), at the latest until then, and it is asked
	 * again.  iSER does not ask: its data came with the header.
	 */
	struct sgl *(*land)(struct iscsi_conn *conn, const struct dm_pdu *pdu,
			    size_t *sgl_offset);
	/*
	 * The header at @bhs is about to leave: fill in ExpCmdSN and MaxCmdSN
	 * (bytes 28-35), as late as the datamover can.  In an R2T also the
	 * StatSN, the next one as of now: what counts is where the R2T stands
	 * among the responses, so the datamover keeps the one that it had when
	 * it was queued.  Changes nothing.
	 */
	void (*stamp)(struct iscsi_conn *conn, uint8_t *bhs);
	/*
	 * A control PDU is complete.  With data_digest_bad it may be a
	 * solicited Data-Out too: the session rejects it and hangs up.
	 */
	void (*control)(struct iscsi_conn *conn, const struct dm_pdu *pdu);
	/*
	 * The peer is gone or broke the framing (@status): the session ends its
	 * tasks and calls terminate().  At most once.
	 */
	void (*lost)(struct iscsi_conn *conn, int status, const char *why);
	/* After detach(): its loop has nothing of it any more. */
	void (*detached)(struct iscsi_conn *conn);
	/* After terminate(): nothing refers to the connection any more. */
	void (*closed)(struct iscsi_conn *conn);
};

struct dm_conn {
	const struct dm_ops *ops;
	const struct dm_up *up;
	struct iscsi_conn *owner; /* the session's side */
	struct env *env;
	struct sockaddr_storage local, peer;
	/*
	 * When a part of what get_data asked for came, or of what put_data sends
	 * was fetched, where the initiator may have nothing else to say meanwhile
	 * (TCP); 0: never.
	 */
	uint64_t part_ns;
	/*
	 * PDUs that it was given and did not have stamped yet, where room for
	 * them is short: with window_max; else 0.
	 */
	unsigned unsent;
	/*
	 * Commands that it should have outstanding at most for now, as others need
	 * what receives them, too; 0: any number.
	 */
	unsigned share;
	bool no_window; /* it may not look at MaxCmdSN, and send window_max */
	bool no_immediate; /* what it sends as immediate data is not to be had */
	bool later; /* said by land() */
	uint64_t later_ns; /* before this time it may be; 0: never */
};

/*
 * A datamover's listener calls this for each new connection; the session's side
 * takes it (returns its end) or refuses (NULL: close at once, say nothing).
 * @portal must be known: iscsi_portal_listen() or iscsi_portal_declare().
 */
struct iscsi;
struct iscsi_conn *iscsi_conn_accept(struct iscsi *iscsi, struct dm_conn *dm,
				     unsigned portal);
extern const struct dm_up iscsi_dm_up;

#endif
