/* Counters that many threads add to, at the same time and one after the other. */
#include "base/stats.h"
#include "tests/lib/test.h"

#include <pthread.h>
#include <string.h>

#define THREADS 8u
#define ADDS 100000u

static struct counter many = { .name = "many" };
static struct counter other = { .name = "other" };
static struct counter unknown = { .name = "unknown" };

static void *add(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < ADDS; i++) {
		counter_add(&many, 1);
		counter_add(&other, 2);
		counter_add(&unknown, 3);
	}
	return NULL;
}

/* No addition is lost, also of threads that have ended, and of no registration. */
TEST(stats, threads)
{
	pthread_t thread[THREADS];
	uint64_t rounds = 0, before;

	counter_register(&many);
	counter_register(&other);
	counter_register(&many);
	for (; rounds < 3; rounds++) {
		for (unsigned i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_create(&thread[i], NULL, add, NULL),
				 0);
		before = 0;
		for (unsigned i = 0; i < 100; i++) { /* never goes back */
			CHECK(counter_value(&many) >= before);
			before = counter_value(&many);
		}
		for (unsigned i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_join(thread[i], NULL), 0);
	}
	add(NULL);
	counter_add(&other, (uint64_t)-1); /* down, as gauges go */
	CHECK_EQ(counter_value(&many), (rounds * THREADS + 1) * ADDS);
	CHECK_EQ(counter_value(&other), (rounds * THREADS + 1) * ADDS * 2 - 1);
	CHECK_EQ(counter_value(&unknown), (rounds * THREADS + 1) * ADDS * 3);
}

/* Threads that come and go do not make cells for ever. */
TEST(stats, cells_are_used_again)
{
	struct counter_cells *cells[2];
	pthread_t thread;

	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(pthread_create(&thread, NULL, add, NULL), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		cells[i] = counter__cells_take();
		CHECK(cells[i] != NULL);
		atomic_store(&cells[i]->taken, 0);
	}
	CHECK(cells[0] == cells[1]);
}

static uint64_t seven(struct counter *counter)
{
	(void)counter;
	return 7;
}

static struct counter gauge = { .name = "gauge", .read = seven };

static void visit(struct counter *counter, void *arg)
{
	if (strcmp(counter->name, "gauge") == 0)
		*(uint64_t *)arg += counter_value(counter);
}

TEST(stats, gauges)
{
	uint64_t sum = 0;

	counter_register(&gauge);
	counter_register(&gauge);
	counter_each(visit, &sum);
	CHECK_EQ(sum, 7);
}

/* ---- histograms ---- */

static struct histogram times = { .name = "times" };
static struct histogram spread = { .name = "spread" };

static void *take_times(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < ADDS; i++)
		histogram_add(&times, i);
	return NULL;
}

TEST(stats, every_time_has_its_bucket)
{
	uint64_t bound = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		CHECK_EQ(histogram__bucket(bound), i);
		CHECK(histogram_bound(i) > bound);
		CHECK_EQ(histogram__bucket(histogram_bound(i) - 1), i);
		bound = histogram_bound(i);
	}
	CHECK_EQ(bound, UINT64_MAX);
	CHECK_EQ(histogram_bound(0), 4096);
	CHECK_EQ(histogram__bucket(60000000000ull), HISTOGRAM_BUCKETS - 1);
	CHECK_EQ(histogram_bound(HISTOGRAM_BUCKETS - 2), 1ull << 35);
}

TEST(stats, times_of_threads)
{
	struct histogram_value value;
	pthread_t thread[THREADS];
	uint64_t count = 0;

	histogram_add(&times, 5000); /* before it is known */
	histogram_register(&times);
	histogram_register(&spread);
	histogram_register(&times);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, take_times, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	histogram_read(&times, &value);
	CHECK_EQ(value.count, THREADS * ADDS + 1);
	CHECK_EQ(value.sum_ns,
		 (uint64_t)THREADS * ADDS * (ADDS - 1) / 2 + 5000);
	CHECK_EQ(value.bucket[0], THREADS * 4096);
	CHECK_EQ(value.bucket[1], THREADS * 2048 + 1);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		count += value.bucket[i];
	CHECK_EQ(count, value.count);
	histogram_read(&spread, &value); /* its neighbour */
	CHECK_EQ(value.count + value.sum_ns, 0);
}

TEST(stats, what_was_gained)
{
	static struct histogram_of of;
	struct histogram_value then, now;

	histogram_of_add(&of, 5000);
	histogram_of_add(&of, 100000);
	histogram_of_read(&of, &then);
	CHECK_EQ(then.count, 2);
	CHECK_EQ(then.sum_ns, 105000);
	histogram_of_add(&of, 100001);
	histogram_of_read(&of, &now);
	histogram_gain(&now, &then);
	CHECK_EQ(now.count, 1);
	CHECK_EQ(now.sum_ns, 100001);
	CHECK_EQ(now.bucket[histogram__bucket(100001)], 1);
	CHECK_EQ(now.bucket[histogram__bucket(5000)], 0);
}

TEST(stats, quantiles)
{
	struct histogram_value value;

	histogram_register(&spread);
	histogram_read(&spread, &value);
	CHECK_EQ(histogram_quantile(&value, 500), 0);
	for (unsigned i = 0; i < 990; i++)
		histogram_add(&spread, 100000 + i);
	for (unsigned i = 0; i < 10; i++)
		histogram_add(&spread, 5000000 + i);
	histogram_read(&spread, &value);
	/* Within the bucket of what it is. */
	CHECK_EQ(histogram__bucket(histogram_quantile(&value, 0)),
		 histogram__bucket(100000));
	CHECK_EQ(histogram__bucket(histogram_quantile(&value, 500)),
		 histogram__bucket(100000));
	CHECK_EQ(histogram_quantile(&value, 990),
		 histogram_bound(histogram__bucket(100000)));
	CHECK_EQ(histogram__bucket(histogram_quantile(&value, 991)),
		 histogram__bucket(5000000));
	CHECK_EQ(histogram_quantile(&value, 1000),
		 histogram_bound(histogram__bucket(5000000)));
	histogram_add(&spread, UINT64_MAX / 2);
	histogram_read(&spread, &value);
	CHECK_EQ(histogram_quantile(&value, 1000),
		 histogram_bound(HISTOGRAM_BUCKETS - 2));
}
