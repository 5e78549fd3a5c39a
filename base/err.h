/*
 * err: status codes.  Every call returns 0 or a negative errno; this table
 * gives each one we use its one meaning in Basalt and a text for people.
 */
#ifndef BASALT_BASE_ERR_H
#define BASALT_BASE_ERR_H

#include <errno.h>

/* code, text.  A SCSI sense code is chosen from these in iscsi/scsi_sense.c. */
#define ERR_MAP(X)                                                             \
	X(ENOMEM, "out of memory")                                             \
	X(EINVAL, "invalid argument")                                          \
	X(EPROTO, "the peer broke the protocol")                               \
	X(EMSGSIZE, "message too long")                                        \
	X(EBUSY, "busy: the queue is full, try again")                         \
	X(EAGAIN, "not now, try again")                                        \
	X(ECANCELED, "cancelled")                                              \
	X(ETIMEDOUT, "timed out")                                              \
	X(EIO, "input/output error")                                           \
	X(EBADMSG, "stored data does not match its checksum")                  \
	X(ENOSPC, "no space left for data")                                    \
	X(EMFILE, "too many open files")                                       \
	X(ENFILE, "too many open files in the system")                         \
	X(EROFS, "read-only")                                                  \
	X(ENODEV, "the disk is gone or has failed")                            \
	X(ENXIO, "unavailable: no complete copy can be reached")               \
	X(ENOENT, "does not exist")                                            \
	X(ENOTEMPTY, "it holds data")                                          \
	X(EEXIST, "exists already")                                            \
	X(ESTALE, "fenced: a newer owner or membership exists")                \
	X(EILSEQ, "miscompare")                                                \
	X(EPERM, "reservation conflict")                                       \
	X(EACCES, "access denied")                                             \
	X(ERANGE, "out of range")                                              \
	X(EOPNOTSUPP, "not supported")                                         \
	X(EUCLEAN, "damaged on disk")                                          \
	X(EMEDIUMTYPE, "unknown format version or feature")                    \
	X(ECONNRESET, "connection lost")                                       \
	X(ENOTCONN, "not connected")                                           \
	X(EADDRINUSE, "address in use")                                        \
	X(ESHUTDOWN, "shutting down")

/* The name ("EIO") and the text of @status (0 or -errno); never NULL. */
const char *err_name(int status);
const char *err_text(int status);

#endif
