/*
 * super: what a disk says of itself: superblocks, probing, formatting.
 *
 * There are two superblocks, written in turn.  Everything here that does I/O
 * blocks: it runs on a worker, or before a loop.
 */
#include "lsom/lsom_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t lsom__super_next(struct lsom_disk *disk, void *block)
{
	disk->super.sequence++;
	memset(block, 0, LSOM_BLOCK);
	memcpy(block, &disk->super, sizeof(disk->super));
	lsom__super_seal(block);
	return disk->super.sequence % 2 * LSOM__SUPER_GAP;
}

int lsom__super_write_now(struct lsom_disk *disk)
{
	uint8_t *block = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	uint64_t at;
	int rv;

	if (block == NULL)
		return -ENOMEM;
	at = lsom__super_next(disk, block);
	lsom__dev_asked(disk);
	rv = env_dev_write_now(disk->env, disk->dev, block, LSOM_BLOCK, at,
			       ENV_DURABLE);
	lsom__dev_answered(disk);
	free(block);
	return rv;
}

/*
 * The newer of two superblocks.  One that is torn is no damage: the other one
 * is then whole, and that open was never finished.  One that the medium lost is
 * as one that is torn.
 */
int lsom__super_read(struct env *env, struct env_dev *dev, bool lose_unreadable,
		     struct lsom__super *out, bool *torn)
{
	uint8_t *block = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	bool unreadable = false;
	int rv = -ENODATA, one, i;
	struct lsom__super s;

	if (block == NULL)
		return -ENOMEM;
	memset(out, 0, sizeof(*out));
	if (torn != NULL)
		*torn = false;
	for (i = 0; i < 2; i++) {
		one = env_dev_read_now(env, dev, block, LSOM_BLOCK,
				       (uint64_t)i * LSOM__SUPER_GAP);
		if (one == -EIO && lose_unreadable) {
			unreadable = true;
			one = -ENODATA;
		}
		if (one < 0 && one != -ENODATA) {
			rv = one;
			break;
		}
		memset(&s, 0, sizeof(s));
		one = one < 0 ? -EUCLEAN : lsom__super_decode(block, &s);
		if (one == -EMEDIUMTYPE) {
			*out = s;
			rv = one;
			break;
		}
		if (one == 0 && (rv != 0 || s.sequence > out->sequence)) {
			*out = s;
			rv = 0;
		}
		if (one == -EUCLEAN && rv == -ENODATA)
			rv = -EUCLEAN;
		if (one != 0 && torn != NULL)
			*torn = true;
	}
	free(block);
	/* Nothing of it was read: that is the device. */
	return unreadable && (rv == -ENODATA || rv == -EUCLEAN) ? -EIO : rv;
}

/* ---- probing and formatting: blocking ---- */

static const struct {
	uint32_t offset;
	uint8_t len;
	const char *magic, *name;
} signatures[] = {
	{ 510, 2, "\x55\xaa", "a partition table or boot sector" },
	{ 512, 8, "EFI PART", "GPT" },
	{ 1024 + 56, 2, "\x53\xef", "ext2, ext3 or ext4" },
	{ 0, 4, "XFSB", "XFS" },
	{ 65536 + 64, 8, "_BHRfS_M", "btrfs" },
	{ 4086, 10, "SWAPSPACE2", "swap" },
	{ 512, 8, "LABELONE", "LVM" },
	{ 0, 6, "LUKS\xba\xbe", "LUKS" },
	{ 4096, 4, "\xfc\x4e\x2b\xa9", "Linux RAID" },
	{ 32769, 5, "CD001", "ISO 9660" },
};

static void signatures_find(const uint8_t *buf, size_t len,
			    struct lsom_probe *out)
{
	size_t i;

	/* From the last: what is more telling than a boot sector's mark. */
	for (i = ARRAY_LEN(signatures); i-- > 0;) {
		if (signatures[i].offset + signatures[i].len > len ||
		    memcmp(buf + signatures[i].offset, signatures[i].magic,
			   signatures[i].len) != 0)
			continue;
		snprintf(out->found, sizeof(out->found), "%s",
			 signatures[i].name);
		return;
	}
	for (i = 0; i < len; i++)
		if (buf[i] != 0) {
			snprintf(out->found, sizeof(out->found),
				 "data of an unknown kind");
			return;
		}
}

#define END_BYTES (128u << 10) /* in which they keep it */

/* What was read of the end of a device: @len bytes from @at on. */
struct end {
	const uint8_t *buf;
	uint64_t at;
	size_t len;
};

/* Of what keeps its own there; the head may be anybody's. */
static bool end_is(const struct end *end, uint64_t place, const char *magic,
		   size_t magic_len)
{
	return place >= end->at && place + magic_len <= end->at + end->len &&
	       memcmp(end->buf + (place - end->at), magic, magic_len) == 0;
}

/* What finds itself there at the next start takes the device, and may write to it. */
static const char *array_find(const struct end *end,
			      const struct env_dev_info *info)
{
	const uint64_t block = info->logical_block, md = 64u << 10;
	/* Versions 0.90 and 1.0, where the kernel and mdadm look for them. */
	uint64_t old = ROUND_DOWN(info->bytes, md) - md;
	uint64_t new = ROUND_DOWN(info->bytes / 512 - 16, 8u) * 512;
	uint64_t last = ROUND_DOWN(info->bytes, block) - block;
	/* Of versions 8.0, 8.4 while it was in use, and 9. */
	uint64_t drbd = ROUND_DOWN(info->bytes, 4096u) - 4096 + 60;

	if (end_is(end, old, "\xfc\x4e\x2b\xa9", 4) ||
	    end_is(end, new, "\xfc\x4e\x2b\xa9", 4))
		return "Linux RAID";
	if (end_is(end, last, "\xde\x11\xde\x11", 4) ||
	    end_is(end, last - block, "Intel Raid ISM", 14))
		return "firmware RAID";
	if (end_is(end, drbd, "\x83\x74\x02\x6b", 4) ||
	    end_is(end, drbd, "\x83\x74\x02\x6c", 4) ||
	    end_is(end, drbd, "\x83\x74\x02\x6d", 4))
		return "DRBD";
	return NULL;
}

/* A device need not end with a whole block, and the rest is not to be had. */
static uint64_t end_of(const struct env_dev_info *info)
{
	return ROUND_DOWN(info->bytes, (uint64_t)info->logical_block);
}

/* @buf: for END_BYTES and a block. */
static int end_read(struct env *env, struct env_dev *dev,
		    const struct env_dev_info *info, uint8_t *buf,
		    struct end *out)
{
	uint64_t at =
		ROUND_DOWN(end_of(info) - END_BYTES, (uint64_t)LSOM_BLOCK);

	*out = (struct end){ buf, at, (size_t)(end_of(info) - at) };
	return env_dev_read_now(env, dev, buf, out->len, at);
}

static int end_probe(struct env *env, struct env_dev *dev,
		     const struct env_dev_info *info, uint8_t *buf,
		     struct lsom_probe *out)
{
	const uint64_t block = info->logical_block;
	struct end end;
	int rv = end_read(env, dev, info, buf, &end);
	const char *found = rv < 0 ? NULL : array_find(&end, info);

	if (rv == 0 && found == NULL &&
	    end_is(&end, ROUND_DOWN(info->bytes, block) - block, "EFI PART", 8))
		found = "the end of a GPT";
	if (found != NULL)
		snprintf(out->found, sizeof(out->found), "%s", found);
	return rv;
}

/* What the superblocks say; 0, or what lsom__super_read() has against them. */
static int super_probe(struct env *env, struct env_dev *dev,
		       const struct env_dev_info *info, struct lsom_probe *out)
{
	struct lsom__super s;
	bool torn = true;
	int rv = -ENODATA;

	if (info->bytes >= LSOM__DISK_MIN)
		rv = lsom__super_read(env, dev, true, &s, &torn);
	if (rv != 0 && rv != -EMEDIUMTYPE)
		return rv;
	out->ours = true;
	out->disk = s.disk;
	out->cluster = s.cluster;
	out->version = s.version;
	out->generation = s.generation;
	/* The other one may be newer, had it not rotted. */
	out->unused = rv == 0 && !torn && s.generation == 0;
	out->bytes = s.disk_bytes;
	out->whole = s.disk_bytes <= info->bytes;
	return 0;
}

/*
 * Of a device with our disk, and more behind it: is that an array's?  What is in
 * front of that is ours, whatever it looks like.
 */
static int part_probe(struct env *env, struct env_dev *dev,
		      const struct env_dev_info *info, struct lsom_probe *out)
{
	const uint64_t ours = out->bytes;
	const char *found = NULL;
	struct end end;
	uint8_t *buf;
	size_t skip;

	if (!info->block_device || ours >= end_of(info) ||
	    end_of(info) < 2 * END_BYTES)
		return 0;
	buf = aligned_alloc(LSOM_BLOCK, END_BYTES + LSOM_BLOCK);
	if (buf == NULL)
		return -ENOMEM;
	/* If it cannot be read it tells nothing. */
	if (end_read(env, dev, info, buf, &end) == 0) {
		skip = ours > end.at ? (size_t)(ours - end.at) : 0;
		end.buf += skip;
		end.at += skip;
		end.len -= skip;
		found = array_find(&end, info);
	}
	if (found != NULL)
		snprintf(out->found, sizeof(out->found), "%s", found);
	free(buf);
	return 0;
}

int lsom_disk_identify(struct env *env, const char *path,
		       struct lsom_probe *out)
{
	struct env_dev_info info;
	struct env_dev *dev;
	int rv;

	memset(out, 0, sizeof(*out));
	rv = env_dev_open(env, path, ENV_DEV_RDONLY, &dev, &info);
	if (rv < 0)
		return rv;
	rv = super_probe(env, dev, &info, out);
	if (rv == 0)
		rv = part_probe(env, dev, &info, out);
	env_dev_close(env, dev);
	return rv;
}

int lsom_disk_probe(struct env *env, const char *path, struct lsom_probe *out)
{
	const size_t head = END_BYTES;
	struct env_dev_info info;
	struct env_dev *dev;
	uint8_t *buf;
	int rv;

	memset(out, 0, sizeof(*out));
	rv = env_dev_open(env, path, ENV_DEV_RDONLY | ENV_DEV_EXCLUSIVE, &dev,
			  &info);
	if (rv == -EBUSY) {
		snprintf(out->found, sizeof(out->found),
			 "mounted, or in use by another program");
		return 0;
	}
	if (rv < 0)
		return rv;
	buf = aligned_alloc(LSOM_BLOCK, head + LSOM_BLOCK);
	rv = buf == NULL ? -ENOMEM : super_probe(env, dev, &info, out);
	if (rv == -ENODATA || rv == -EUCLEAN) {
		rv = info.bytes < head
			     ? 0
			     : env_dev_read_now(env, dev, buf, head, 0);
		if (rv == 0 && info.bytes >= head)
			signatures_find(buf, head, out);
		if (rv == 0 && out->found[0] == '\0' &&
		    info.bytes >= 2 * head && info.block_device)
			rv = end_probe(env, dev, &info, buf, out);
	}
	free(buf);
	env_dev_close(env, dev);
	return rv;
}

static uint32_t segment_bytes_for(uint64_t bytes)
{
	uint64_t s = ROUND_DOWN(bytes / 1024, LSOM__SEGMENT_MIN);

	return (uint32_t)MIN(MAX(s, 4u << 20), LSOM__SEGMENT_MAX);
}

static int super_make(const struct lsom_format *f,
		      const struct env_dev_info *info, struct lsom__super *s)
{
	uint64_t bytes = MIN(info->bytes, LSOM__DISK_MAX), count;
	uint32_t segment =
		f->segment_bytes ? f->segment_bytes : segment_bytes_for(bytes);
	uint32_t least = f->tiny ? LSOM__SEGMENT_TINY : LSOM__SEGMENT_MIN;

	if ((bytes < LSOM__DISK_MIN && !f->tiny) || bytes < LSOM__DATA_START ||
	    info->logical_block > LSOM_BLOCK || segment < least ||
	    segment > LSOM__SEGMENT_MAX || segment % least != 0 ||
	    uuid_is_zero(&f->disk))
		return -EINVAL;
	count = (bytes - LSOM__DATA_START) / segment;
	if (count < 8 || count > LSOM__SEGMENTS_MAX)
		return -EINVAL;
	*s = (struct lsom__super){
		.magic = LSOM__SUPER_MAGIC,
		.version = LSOM__VERSION,
		.compat = LSOM__COMPAT,
		.ro_compat = LSOM__RO_COMPAT,
		.incompat = LSOM__INCOMPAT,
		.disk = f->disk,
		.cluster = f->cluster,
		.sequence = 1,
		.disk_bytes = bytes,
		.data_start = LSOM__DATA_START,
		.segment_bytes = segment,
		.segments = (uint32_t)count,
	};
	return 0;
}

/* Both superblocks, and the first segments of a file written once. */
static int format_write(struct env *env, struct env_dev *dev,
			const struct env_dev_info *info,
			struct lsom_format *format, struct lsom__super *s)
{
	const uint32_t chunk = LSOM__DATA_START;
	uint32_t ahead = info->block_device ? 0 : MIN(s->segments, 4u), i;
	uint8_t *buf = aligned_alloc(LSOM_BLOCK, chunk);
	uint64_t at, end;
	int rv = 0;

	if (buf == NULL)
		return -ENOMEM;
	memset(buf, 0, chunk);
	end = s->data_start + (uint64_t)ahead * s->segment_bytes;
	/* What was there goes first, so that half a format is none. */
	for (at = 0; at < end && rv == 0; at += chunk) {
		rv = env_dev_write_now(env, dev, buf, chunk, at, 0);
		if (format->progress != NULL)
			format->progress(format, (unsigned)(at * 95 / end));
	}
	/* Others have copies of their own at the end, and would find them. */
	if (info->block_device && rv == 0) {
		at = ROUND_UP(end_of(info) - chunk, (uint64_t)LSOM_BLOCK);
		rv = env_dev_write_now(env, dev, buf, end_of(info) - at, at, 0);
	}
	s->zeroed = ahead;
	for (i = 0; i < 2 && rv == 0; i++) {
		s->sequence = i;
		memset(buf, 0, LSOM_BLOCK);
		memcpy(buf, s, sizeof(*s));
		lsom__super_seal(buf);
		rv = env_dev_write_now(env, dev, buf, LSOM_BLOCK,
				       i * (uint64_t)LSOM__SUPER_GAP,
				       ENV_DURABLE);
	}
	free(buf);
	if (rv == 0 && format->progress != NULL)
		format->progress(format, 100);
	return rv;
}

int lsom_disk_format(struct env *env, struct lsom_format *format)
{
	struct env_dev_info info;
	struct lsom__super s;
	struct env_dev *dev;
	int rv =
		env_dev_open(env, format->path, ENV_DEV_EXCLUSIVE, &dev, &info);

	if (rv < 0)
		return rv;
	rv = super_make(format, &info, &s);
	if (rv == 0)
		rv = format_write(env, dev, &info, format, &s);
	env_dev_close(env, dev);
	return rv;
}
