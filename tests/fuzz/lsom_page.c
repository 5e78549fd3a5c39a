/*
 * Pages of the index, as the store has them: what is taken for one stays what it is
 * when it is put there again, and folded over itself.
 */
#include "lsom/lsom_int.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* @value, malloc()ed, says of each slot what @slots does. */
static void same(const struct lsom__slots *slots, struct kv_slice value)
{
	struct lsom__entry a, b;
	struct lsom__slots other;

	lsom__slots_init(&other);
	assert(value.data != NULL);
	assert(lsom__slots_decode(value.data, value.len, &other, NULL) == 0);
	for (unsigned i = 0; i < LSOM__PAGE_SLOTS; i++) {
		lsom__slots_get(slots, i, &a);
		lsom__slots_get(&other, i, &b);
		assert(lsom__version_compare(&a, &b) == 0);
		assert(a.place == b.place);
		assert(a.crc == b.crc);
		assert(a.kind == b.kind);
	}
	lsom__slots_fini(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct kv_slice key = kv_slice("P", 1), page = { data, size };
	uint32_t bits[LSOM__PAGE_SLOTS / 32] = { 0 };
	struct kv_slice again, folded;
	struct lsom__slots slots;

	lsom__slots_init(&slots);
	if (lsom__slots_decode(data, size, &slots, bits) == 0) {
		again.data = lsom__slots_encode(&slots, bits, &again.len);
		same(&slots, again);
		folded.data = lsom__merge(key, again, &page, 1, &folded.len);
		same(&slots, folded);
		free((void *)(uintptr_t)folded.data);
		free((void *)(uintptr_t)again.data);
	}
	lsom__slots_fini(&slots);
	return 0;
}
