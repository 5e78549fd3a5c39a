/* spare: small pieces of memory that a thread keeps for its next requests. */
#include "base/spare.h"

_Thread_local struct spare_list spare__lists[SPARE_SIZES];

void spare_drop(void)
{
	for (unsigned at = 0; at < SPARE_SIZES; at++) {
		struct spare_list *list = &spare__lists[at];

		while (list->count > 0) {
			struct spare *spare = list->first;

			list->first = spare->next;
			list->count--;
			free(spare);
		}
	}
}
