/*
 * clom: placement; pure.
 *
 * A leg is one component, or RAID0 over as many disks as the policy's stripe
 * width; a size beyond one leg's makes a CONCAT of legs.  Disks with the most
 * space come first, both that is free and that is promised to nobody, then those
 * with the fewest components.  What is reserved of a leaf must be free on its
 * disk: used by nobody and kept for nobody.  The rest may be promised many times.
 * What needs several fault domains is refused with what is missing, or with
 * force_provision placed as one copy and flagged.
 */
#include "dom/dom_int.h"

#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>

#define LEG_BYTES (256ull << 30)
#define UNIT_BYTES (1u << 20)
#define DISK_COMPONENTS_MAX 9000u
#define LEGS_MAX 512u

struct place {
	const struct clom_snapshot *snapshot;
	const struct clom_request *request;
	unsigned width;
	uint64_t unit, leg_bytes;
	uint64_t *planned; /* bytes put on each disk by this plan */
	int64_t *reserved; /* of these; in a resize, what is more than before */
	unsigned *added; /* components, likewise */
	uint64_t had_bytes; /* what is reserved already, in a resize */
	/* A leaf found no disk with room for what is reserved of it. */
	uint64_t short_of;
	int short_disk; /* which came closest; -1: there is none */
};

/* ---- what is reserved ---- */

/* @a / @b of @n, where that is not more than @n.  The product may be 128 bits. */
static uint64_t part_of(uint64_t n, uint64_t a, uint64_t b)
{
	__extension__ typedef unsigned __int128 wide;

	return b == 0 || a >= b ? n : (uint64_t)((wide)n * a / b);
}

uint64_t clom_reserved(const Directory__Policy *policy, uint64_t size_bytes)
{
	return policy ? part_of(size_bytes, policy->reserve_percent, 100) : 0;
}

uint64_t clom_resized(const Directory__Policy *policy, uint64_t old_bytes,
		      uint64_t reserved_bytes, uint64_t size_bytes)
{
	uint64_t had = MIN(reserved_bytes, old_bytes);

	if (size_bytes < old_bytes)
		return part_of(size_bytes, had, old_bytes);
	return had + clom_reserved(policy, size_bytes - old_bytes);
}

uint64_t clom_share(uint64_t leaf_bytes, uint64_t size_bytes,
		    uint64_t reserved_bytes)
{
	uint64_t share = part_of(leaf_bytes, reserved_bytes, size_bytes);

	return MIN(ROUND_UP(share, (uint64_t)DOM_BLOCK), leaf_bytes);
}

bool clom_thick(const Directory__Object *object)
{
	return clom_share(object->size_bytes, object->size_bytes,
			  object->reserved_bytes) == object->size_bytes;
}

static uint64_t share_of(const struct place *p, uint64_t leaf_bytes)
{
	return clom_share(leaf_bytes, p->request->size_bytes,
			  p->request->reserved_bytes);
}

/* ---- trees ---- */

static Directory__TreeNode *node_new(Directory__TreeNode__Type type,
				     uint64_t size, size_t children)
{
	Directory__TreeNode *node = calloc(1, sizeof(*node));

	if (node == NULL)
		return NULL;
	directory__tree_node__init(node);
	node->type = type;
	node->size_bytes = size;
	if (children > 0) {
		node->children = calloc(children, sizeof(*node->children));
		if (node->children == NULL) {
			free(node);
			return NULL;
		}
	}
	return node;
}

static void node_free(Directory__TreeNode *node)
{
	if (node != NULL)
		directory__tree_node__free_unpacked(node, NULL);
}

static bool id_put(ProtobufCBinaryData *to, const struct uuid *id)
{
	to->data = malloc(sizeof(id->b));
	if (to->data == NULL)
		return false;
	to->len = sizeof(id->b);
	memcpy(to->data, id->b, sizeof(id->b));
	return true;
}

static Directory__TreeNode *leaf_new(const struct place *p, unsigned disk,
				     uint64_t size)
{
	Directory__TreeNode *node =
		node_new(DIRECTORY__TREE_NODE__TYPE__COMPONENT, size, 0);
	const struct clom_request *rq = p->request;
	const struct clom_disk *d = &p->snapshot->disks[disk];
	struct uuid cid, inc;

	if (node == NULL)
		return NULL;
	node->leaf = calloc(1, sizeof(*node->leaf));
	if (node->leaf == NULL)
		goto err;
	directory__leaf__init(node->leaf);
	rq->uuid_make(rq->arg, &cid);
	rq->uuid_make(rq->arg, &inc);
	if (!id_put(&node->leaf->cid, &cid) ||
	    !id_put(&node->leaf->node, &d->node) ||
	    !id_put(&node->leaf->disk, &d->disk))
		goto err;
	node->leaf->cinc = get_le64(inc.b) | 1;
	node->leaf->state = DIRECTORY__LEAF__STATE__ACTIVE;
	node->leaf->member_csn = rq->csn;
	node->leaf->votes = 1;
	p->planned[disk] += size;
	p->reserved[disk] += (int64_t)share_of(p, size);
	p->added[disk]++;
	return node;

err:
	node_free(node);
	return NULL;
}

/* ---- choosing ---- */

static unsigned components(const struct place *p, unsigned i)
{
	return p->snapshot->disks[i].components + p->added[i];
}

static bool usable(const struct place *p, unsigned i)
{
	const struct clom_disk *d = &p->snapshot->disks[i];

	return d->healthy && !d->removing &&
	       components(p, i) < DISK_COMPONENTS_MAX;
}

/* Signed: thin provisioning may promise more than there is. */
static int64_t space_left(const struct place *p, unsigned i)
{
	const struct clom_disk *d = &p->snapshot->disks[i];

	return (int64_t)d->usable_bytes - (int64_t)d->used_bytes -
	       (int64_t)d->kept_bytes - (int64_t)p->planned[i];
}

/*
 * As if all that is promised were written: thin components take no space at
 * first, and would all come to one disk.
 */
static int64_t promises_left(const struct place *p, unsigned i)
{
	const struct clom_disk *d = &p->snapshot->disks[i];
	uint64_t taken = d->used_bytes + d->kept_bytes;

	return (int64_t)d->usable_bytes -
	       (int64_t)MAX(taken, d->promised_bytes) - (int64_t)p->planned[i];
}

/* What may still be reserved there. */
static int64_t room_left(const struct place *p, unsigned i)
{
	const struct clom_disk *d = &p->snapshot->disks[i];

	return (int64_t)d->usable_bytes - (int64_t)d->used_bytes -
	       (int64_t)d->kept_bytes - p->reserved[i];
}

/*
 * What speaks for a disk: its space, what there is and what will be, each with a
 * tenth of it more where no request has to go to another shard.
 */
static int64_t worth(const struct place *p, unsigned i)
{
	const struct clom_disk *d = &p->snapshot->disks[i];

	return space_left(p, i) + promises_left(p, i) +
	       (d->near ? (int64_t)d->usable_bytes / 5 : 0);
}

/*
 * The best disk for a leaf of @size that @taken does not have yet.  -ENXIO: none;
 * -ENOSPC: none with room for what is reserved of it.
 */
static int disk_best(struct place *p, const bool *taken, uint64_t size)
{
	int64_t want = (int64_t)share_of(p, size);
	int best = -1, most = -1;

	for (unsigned i = 0; i < p->snapshot->disks_count; i++) {
		int64_t a, b;

		if (taken[i] || !usable(p, i))
			continue;
		if (most < 0 || room_left(p, i) > room_left(p, (unsigned)most))
			most = (int)i;
		if (want > 0 && room_left(p, i) < want)
			continue;
		if (best < 0) {
			best = (int)i;
			continue;
		}
		a = worth(p, i);
		b = worth(p, (unsigned)best);
		if (a > b || (a == b &&
			      components(p, i) < components(p, (unsigned)best)))
			best = (int)i;
	}
	if (best >= 0)
		return best;
	p->short_of = (uint64_t)want;
	p->short_disk = most;
	return most < 0 ? -ENXIO : -ENOSPC;
}

static unsigned disks_usable(const struct place *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->snapshot->disks_count; i++)
		n += usable(p, i);
	return n;
}

static uint64_t column_size(const struct place *p, uint64_t size)
{
	return DIV_UP(size, p->unit * p->width) * p->unit;
}

static int leg_new(struct place *p, uint64_t size, Directory__TreeNode **out)
{
	bool *taken = calloc(p->snapshot->disks_count + 1, sizeof(*taken));
	Directory__TreeNode *leg = NULL;
	int rv = -ENOMEM, disk;

	if (taken == NULL)
		return -ENOMEM;
	if (p->width == 1) {
		disk = disk_best(p, taken, size);
		if (disk < 0) {
			rv = disk;
			goto out;
		}
		leg = leaf_new(p, (unsigned)disk, size);
		rv = leg ? 0 : -ENOMEM;
		goto out;
	}
	leg = node_new(DIRECTORY__TREE_NODE__TYPE__RAID0, size, p->width);
	if (leg == NULL)
		goto out;
	leg->stripe_unit_bytes = (uint32_t)p->unit;
	for (unsigned c = 0; c < p->width; c++) {
		disk = disk_best(p, taken, column_size(p, size));
		if (disk < 0) {
			rv = disk;
			goto out;
		}
		taken[disk] = true;
		leg->children[c] =
			leaf_new(p, (unsigned)disk, column_size(p, size));
		if (leg->children[c] == NULL)
			goto out;
		leg->n_children++;
	}
	rv = 0;
out:
	free(taken);
	if (rv < 0)
		node_free(leg);
	else
		*out = leg;
	return rv;
}

static unsigned domains_count(const struct clom_snapshot *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->disks_count; i++) {
		bool seen = !s->disks[i].healthy || s->disks[i].removing;

		for (unsigned k = 0; k < i && !seen; k++)
			seen = s->disks[k].healthy && !s->disks[k].removing &&
			       strcmp(s->disks[k].fault_domain,
				      s->disks[i].fault_domain) == 0;
		n += !seen;
	}
	return n;
}

unsigned clom_domains_needed(const Directory__Policy *policy)
{
	switch (policy->method) {
	case DIRECTORY__POLICY__METHOD__METHOD_RAID5:
		return 4;
	case DIRECTORY__POLICY__METHOD__METHOD_RAID6:
		return 6;
	default:
		return 2 * policy->failures_to_tolerate + 1;
	}
}

/* No disk is usable: why not? */
static void none_usable(const struct place *p, char *why, size_t why_len)
{
	for (unsigned i = 0; i < p->snapshot->disks_count; i++) {
		const struct clom_disk *d = &p->snapshot->disks[i];

		if (!d->healthy || d->removing)
			continue;
		snprintf(why, why_len,
			 "each disk in service has %u components, the most "
			 "there can be: add one with 'basalt disk add'",
			 DISK_COMPONENTS_MAX);
		return;
	}
	snprintf(why, why_len,
		 "no disk can take components now%s: add one with "
		 "'basalt disk add'",
		 p->snapshot->disks_count > 0
			 ? " ('basalt disk list' shows why)"
			 : "");
}

/*
 * 0, or why not.  Components in one fault domain give no copies: a policy that
 * wants some is placed as one copy, and only when forced.
 */
static int policy_check(struct place *p, bool *forced, char *why,
			size_t why_len)
{
	const Directory__Policy *policy = p->request->policy;
	unsigned domains = domains_count(p->snapshot);
	unsigned disks = disks_usable(p), need;

	if (disks == 0) {
		none_usable(p, why, why_len);
		return -ENXIO;
	}
	if (policy == NULL)
		return 0;
	need = clom_domains_needed(policy);
	if (need > 1) {
		if (!policy->force_provision) {
			snprintf(why, why_len,
				 "failures to tolerate %u needs %u fault "
				 "domains, %u found%s",
				 policy->failures_to_tolerate, need, domains,
				 domains >= need
					 ? "; copies on several nodes are not "
					   "supported by this version"
					 : "");
			return -ENXIO;
		}
		*forced = true;
	}
	if (p->width > disks) {
		if (!policy->force_provision) {
			snprintf(why, why_len,
				 "stripe width %u needs %u disks, %u found",
				 p->width, p->width, disks);
			return -ENXIO;
		}
		p->width = disks;
		*forced = true;
	}
	return 0;
}

/* On all disks, before anything is planned. */
static uint64_t room_all(const struct place *p)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < p->snapshot->disks_count; i++) {
		const struct clom_disk *d = &p->snapshot->disks[i];

		if (usable(p, i) &&
		    d->usable_bytes > d->used_bytes + d->kept_bytes)
			sum += d->usable_bytes - d->used_bytes - d->kept_bytes;
	}
	return sum;
}

/* What was asked for, what of it is missing, what there is, what helps. */
static void short_tell(const struct place *p, char *why, size_t why_len)
{
	char asked[SIZE_TEXT_MAX], want[SIZE_TEXT_MAX], left[SIZE_TEXT_MAX];
	char all[SIZE_TEXT_MAX], id[UUID_TEXT_LEN];
	int64_t room;

	if (p->short_disk < 0)
		return;
	room = MAX(room_left(p, (unsigned)p->short_disk), (int64_t)0);
	uuid_format(&p->snapshot->disks[p->short_disk].disk, id);
	snprintf(why, why_len,
		 "%s%s is to be reserved, and %s of it finds no room: disk "
		 "%.8s, the best for it, has %s left of the %s that the disks "
		 "have neither used nor reserved; add a disk, or reserve less",
		 size_format(p->request->reserved_bytes - p->had_bytes, asked),
		 p->had_bytes > 0 ? " more" : "",
		 size_format(p->short_of, want), id,
		 size_format((uint64_t)room, left),
		 size_format(room_all(p), all));
}

/* Of one object: copies will make of each leaf as many as four. */
static uint64_t legs_most(const struct place *p)
{
	return MIN(LEGS_MAX, DOM_LEAVES_MAX / 4 / p->width);
}

/* No disk more would help. */
static int too_large(const struct place *p, char *why, size_t why_len)
{
	char most[SIZE_TEXT_MAX];

	snprintf(why, why_len,
		 "with stripe width %u a virtual disk has at most %s", p->width,
		 size_format(legs_most(p) * p->leg_bytes, most));
	return -ERANGE;
}

static int place_begin(struct place *p, const struct clom_snapshot *snapshot,
		       const struct clom_request *request, char *why,
		       size_t why_len)
{
	memset(p, 0, sizeof(*p));
	p->snapshot = snapshot;
	p->request = request;
	p->unit = request->stripe_unit_bytes ? request->stripe_unit_bytes
					     : UNIT_BYTES;
	p->leg_bytes = request->leg_bytes ? request->leg_bytes : LEG_BYTES;
	if (p->unit % DOM_BLOCK || p->leg_bytes % DOM_BLOCK)
		return -EINVAL;
	p->short_disk = -1;
	p->width = request->policy != NULL && request->policy->stripe_width > 1
			   ? request->policy->stripe_width
			   : 1;
	/* So that no sum of sizes goes over 64 bits. */
	if (request->size_bytes / p->leg_bytes > LEGS_MAX)
		return too_large(p, why, why_len);
	p->planned = calloc(snapshot->disks_count + 1, sizeof(*p->planned));
	p->reserved = calloc(snapshot->disks_count + 1, sizeof(*p->reserved));
	p->added = calloc(snapshot->disks_count + 1, sizeof(*p->added));
	return p->planned == NULL || p->reserved == NULL || p->added == NULL
		       ? -ENOMEM
		       : 0;
}

static void place_end(struct place *p)
{
	free(p->planned);
	free(p->reserved);
	free(p->added);
}

/* Legs for @size more bytes, appended to @concat, which has room. */
static int legs_add(struct place *p, Directory__TreeNode *concat, uint64_t size)
{
	while (size > 0) {
		uint64_t part = MIN(size, p->leg_bytes);
		int rv =
			leg_new(p, part, &concat->children[concat->n_children]);

		if (rv < 0)
			return rv;
		concat->n_children++;
		size -= part;
	}
	return 0;
}

int clom_place(const struct clom_snapshot *snapshot,
	       const struct clom_request *request, Directory__TreeNode **out,
	       bool *forced, char *why, size_t why_len)
{
	uint64_t size = ROUND_UP(request->size_bytes, (uint64_t)DOM_BLOCK);
	Directory__TreeNode *root = NULL;
	struct place p;
	uint64_t legs;
	int rv;

	*forced = false;
	rv = place_begin(&p, snapshot, request, why, why_len);
	if (rv < 0)
		goto out;
	rv = policy_check(&p, forced, why, why_len);
	if (rv < 0)
		goto out;
	legs = DIV_UP(size, p.leg_bytes);
	if (legs > legs_most(&p)) {
		rv = too_large(&p, why, why_len);
		goto out;
	}
	if (legs <= 1) {
		rv = leg_new(&p, size, &root);
		goto out;
	}
	root = node_new(DIRECTORY__TREE_NODE__TYPE__CONCAT, size, legs);
	rv = root ? legs_add(&p, root, size) : -ENOMEM;
	if (rv < 0) {
		node_free(root);
		root = NULL;
	}
out:
	if (rv == -ENOSPC)
		short_tell(&p, why, why_len);
	place_end(&p);
	if (rv == 0)
		*out = root;
	else if (rv == -ENOMEM)
		snprintf(why, why_len, "out of memory");
	return rv;
}

/* ---- resize ---- */

static Directory__TreeNode *tree_copy(const Directory__TreeNode *tree)
{
	size_t len = directory__tree_node__get_packed_size(tree);
	uint8_t *bytes = malloc(len + 1);
	Directory__TreeNode *copy = NULL;

	if (bytes != NULL) {
		directory__tree_node__pack(tree, bytes);
		copy = directory__tree_node__unpack(NULL, len, bytes);
	}
	free(bytes);
	return copy;
}

/* Give the last leg, a component or a RAID0, another size. */
static void leg_size_set(Directory__TreeNode *leg, uint64_t size)
{
	leg->size_bytes = size;
	for (size_t i = 0; i < leg->n_children; i++) {
		uint64_t row =
			(uint64_t)leg->stripe_unit_bytes * leg->n_children;

		leg->children[i]->size_bytes =
			DIV_UP(size, row) * leg->stripe_unit_bytes;
	}
}

/* @root as a CONCAT with room for @legs children; takes it over. */
static Directory__TreeNode *concat_of(Directory__TreeNode *root, uint64_t legs)
{
	Directory__TreeNode **children;
	Directory__TreeNode *concat;

	if (root->type != DIRECTORY__TREE_NODE__TYPE__CONCAT) {
		concat = node_new(DIRECTORY__TREE_NODE__TYPE__CONCAT,
				  root->size_bytes, legs);
		if (concat != NULL)
			concat->children[concat->n_children++] = root;
		return concat;
	}
	children = realloc(root->children, legs * sizeof(*children));
	if (children == NULL)
		return NULL;
	root->children = children;
	return root;
}

static int disk_at(const struct place *p, const ProtobufCBinaryData *id)
{
	struct uuid disk;

	for (unsigned i = 0; i < p->snapshot->disks_count; i++)
		if (dom__uuid_of(id, &disk) &&
		    uuid_equal(&disk, &p->snapshot->disks[i].disk))
			return (int)i;
	return -1;
}

/* Count what is reserved below @node, of an object like that. */
static void shares_add(struct place *p, const Directory__TreeNode *node,
		       uint64_t size_bytes, uint64_t reserved_bytes, int sign)
{
	int i = node->leaf != NULL ? disk_at(p, &node->leaf->disk) : -1;

	if (i >= 0)
		p->reserved[i] +=
			sign * (int64_t)clom_share(node->size_bytes, size_bytes,
						   reserved_bytes);
	for (size_t c = 0; c < node->n_children; c++)
		shares_add(p, node->children[c], size_bytes, reserved_bytes,
			   sign);
}

/* Is there room for what is more on each disk? */
static int room_check(struct place *p)
{
	for (unsigned i = 0; i < p->snapshot->disks_count; i++) {
		int64_t more = p->reserved[i];

		if (more <= 0 || room_left(p, i) >= 0)
			continue;
		p->short_of = (uint64_t)more;
		p->short_disk = (int)i;
		p->reserved[i] = 0; /* to tell what there is */
		return -ENOSPC;
	}
	return 0;
}

/* The leaves there are stay where they are: is there room for their shares? */
static int shares_check(struct place *p, const Directory__Object *object,
			const Directory__TreeNode *tree)
{
	shares_add(p, object->tree, object->size_bytes, object->reserved_bytes,
		   -1);
	shares_add(p, tree, p->request->size_bytes, p->request->reserved_bytes,
		   1);
	return room_check(p);
}

static int grow(struct place *p, const Directory__Object *object,
		Directory__TreeNode **root, uint64_t size, char *why,
		size_t why_len)
{
	Directory__TreeNode *tree = *root, *last;
	bool concat = tree->type == DIRECTORY__TREE_NODE__TYPE__CONCAT;
	uint64_t more = size - tree->size_bytes, room, legs;
	int rv;

	last = concat ? tree->children[tree->n_children - 1] : tree;
	room = last->size_bytes < p->leg_bytes
		       ? MIN(p->leg_bytes - last->size_bytes, more)
		       : 0;
	leg_size_set(last, last->size_bytes + room);
	rv = shares_check(p, object, tree);
	if (rv < 0)
		return rv;
	more -= room;
	if (more > 0) {
		legs = (concat ? tree->n_children : 1) +
		       DIV_UP(more, p->leg_bytes);
		if (legs > legs_most(p))
			return too_large(p, why, why_len);
		tree = concat_of(tree, legs);
		if (tree == NULL)
			return -ENOMEM;
		*root = tree;
		rv = legs_add(p, tree, more);
		if (rv < 0)
			return rv;
	}
	tree->size_bytes = size;
	return 0;
}

static void shrink(Directory__TreeNode *tree, uint64_t size)
{
	uint64_t start = 0;
	size_t keep = 0;

	if (tree->type != DIRECTORY__TREE_NODE__TYPE__CONCAT) {
		leg_size_set(tree, size);
		return;
	}
	while (keep < tree->n_children && start < size) {
		Directory__TreeNode *leg = tree->children[keep++];

		if (leg->size_bytes > size - start)
			leg_size_set(leg, size - start);
		start += leg->size_bytes;
	}
	for (size_t i = keep; i < tree->n_children; i++)
		node_free(tree->children[i]);
	tree->n_children = keep;
	tree->size_bytes = size;
}

int clom__resize(const struct clom_snapshot *snapshot,
		 const struct clom_request *request,
		 const Directory__Object *object, Directory__TreeNode **out,
		 char *why, size_t why_len)
{
	const Directory__TreeNode *root = object->tree;
	uint64_t size = ROUND_UP(request->size_bytes, (uint64_t)DOM_BLOCK);
	Directory__TreeNode *tree = NULL;
	bool forced;
	struct place p;
	int rv = place_begin(&p, snapshot, request, why, why_len);

	if (rv == 0) {
		p.had_bytes =
			MIN(object->reserved_bytes, request->reserved_bytes);
		tree = tree_copy(root);
		rv = tree == NULL ? -ENOMEM : 0;
	}
	if (rv == 0 && size > root->size_bytes) {
		rv = policy_check(&p, &forced, why, why_len);
		if (rv == 0)
			rv = grow(&p, object, &tree, size, why, why_len);
		if (rv == -ENOSPC)
			short_tell(&p, why, why_len);
	} else if (rv == 0) {
		shrink(tree, size);
	}
	place_end(&p);
	if (rv < 0)
		node_free(tree);
	else
		*out = tree;
	return rv;
}

/* ---- more reserved ---- */

/* What is kept for a leaf of @object with so much reserved and @used of it. */
static int64_t kept_of(const Directory__Object *object, uint64_t leaf_bytes,
		       uint64_t reserved_bytes, uint64_t used)
{
	uint64_t share =
		clom_share(leaf_bytes, object->size_bytes, reserved_bytes);

	return (int64_t)(share - MIN(share, used));
}

/* Count what more is kept for the leaves below @node, which have used @used. */
static const uint64_t *kept_add(struct place *p,
				const Directory__TreeNode *node,
				const Directory__Object *object,
				const uint64_t *used)
{
	int i;

	if (node->leaf != NULL) {
		i = disk_at(p, &node->leaf->disk);
		if (i >= 0)
			p->reserved[i] +=
				kept_of(object, node->size_bytes,
					p->request->reserved_bytes, *used) -
				kept_of(object, node->size_bytes,
					object->reserved_bytes, *used);
		used++;
	}
	for (size_t c = 0; c < node->n_children; c++)
		used = kept_add(p, node->children[c], object, used);
	return used;
}

int clom__promise(const struct clom_snapshot *snapshot,
		  const Directory__Object *object, uint64_t reserved_bytes,
		  const uint64_t *used, char *why, size_t why_len)
{
	const struct clom_request request = { .size_bytes = object->size_bytes,
					      .reserved_bytes =
						      reserved_bytes };
	struct place p;
	int rv = place_begin(&p, snapshot, &request, why, why_len);

	if (rv == 0) {
		p.had_bytes = object->reserved_bytes;
		kept_add(&p, object->tree, object, used);
		rv = room_check(&p);
		if (rv == -ENOSPC)
			short_tell(&p, why, why_len);
	}
	place_end(&p);
	return rv;
}
