/* A test library with the signatures of libnccl and libcudart: GPUs are host memory, and the sum is computed.
 *
 * It detects undefined behavior of the real libraries: invalid handles, too small buffers, calls outside a group, a wrong
 * current device, a stream of another device. A violation is printed and ends the process with exit code 70.
 *
 *   FAKE_GPUS=8            devices
 *   FAKE_FAIL=name:n       the n-th call of that function fails
 *   FAKE_ASYNC=1           an asynchronous error is reported after the first collective
 *   FAKE_WRONG=1           one byte of the sum is wrong
 *   FAKE_HANG=1            the collective never ends
 *   FAKE_NETWORK=name      the network name in the log; empty for none
 *   FAKE_PAIR=folder       ranks of another process take part and exchange sums through files in this folder
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int ncclResult_t;
typedef int cudaError_t;
typedef struct { char internal[128]; } ncclUniqueId;
enum { MOST = 64 };

struct stream { uint32_t magic; int device; };
struct comm { uint32_t magic; int device, rank, ranks; };
struct memory { void *at; size_t size; int device; };
struct pending { const void *send; void *receive; size_t count; struct comm *comm; };

static int current = 0, group = 0, communicators = 0, collectives = 0;
static struct memory memories[MOST * 4];
static struct pending queue[MOST];
static unsigned pair_id = 0;
static int queued = 0, gathering = 0, initialized[MOST], waiting_ranks = 0, waiting_total = 0;

/* Writes this process's sums to a file and reads those of the other process. Both number their collectives equally. */
static void meet(uint32_t *sum, size_t count, int first) {
    const char *folder = getenv("FAKE_PAIR");
    char mine[512], part[512], other[512];
    snprintf(mine, sizeof mine, "%s/sum-%u-%d-%d", folder, pair_id, collectives, first ? 1 : 0);
    snprintf(other, sizeof other, "%s/sum-%u-%d-%d", folder, pair_id, collectives, first ? 0 : 1);
    snprintf(part, sizeof part, "%.500s.part", mine);
    FILE *file = fopen(part, "wb");
    if (!file || fwrite(sum, 4, count, file) != count || fclose(file) || rename(part, mine)) _exit(71);
    uint32_t *theirs = malloc(count * 4);
    for (int tries = 0; !(file = fopen(other, "rb")); usleep(2000)) if (tries++ > 5000) _exit(72);
    if (fread(theirs, 4, count, file) != count) _exit(73);
    fclose(file);
    for (size_t i = 0; i < count; i++) sum[i] += theirs[i];
    free(theirs);
}

static int devices(void) { const char *n = getenv("FAKE_GPUS"); return n ? atoi(n) : 8; }

static void violation(const char *what) {
    fprintf(stderr, "fake: %s\n", what);
    _exit(70);
}

static int ordered_to_fail(const char *name) {
    static struct { char name[64]; int calls; } counts[64];
    const char *order = getenv("FAKE_FAIL");
    size_t length = strlen(name);
    for (int i = 0; i < 64; i++) {
        if (!counts[i].name[0]) strncpy(counts[i].name, name, 63);
        if (strcmp(counts[i].name, name)) continue;
        counts[i].calls++;
        return order && !strncmp(order, name, length) && order[length] == ':' && atoi(order + length + 1) == counts[i].calls;
    }
    return 0;
}

static void say(const char *text) {
    const char *path = getenv("NCCL_DEBUG_FILE");
    const char *level = getenv("NCCL_DEBUG");
    if (!path || !level || strcmp(level, "INFO")) violation("the log was not asked for");
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "node:1:1 [0] NCCL INFO %s\n", text);
    fclose(file);
}

static struct memory *memory_of(const void *at, size_t size) {
    for (int i = 0; i < MOST * 4; i++) {
        char *start = memories[i].at;
        if (start && (char *)at >= start && (char *)at + size <= start + memories[i].size) return &memories[i];
    }
    return NULL;
}

/* ---- CUDA runtime ---- */
const char *cudaGetErrorString(cudaError_t code) { return code ? "out of memory" : "no error"; }
cudaError_t cudaGetDeviceCount(int *count) { if (ordered_to_fail("cudaGetDeviceCount")) return 100; *count = devices(); return 0; }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= devices()) violation("cudaSetDevice of a device that does not exist");
    current = device;
    return 0;
}
cudaError_t cudaMalloc(void **at, size_t size) {
    if (ordered_to_fail("cudaMalloc")) return 2;
    for (int i = 0; i < MOST * 4; i++)
        if (!memories[i].at) {
            memories[i] = (struct memory){malloc(size), size, current};
            *at = memories[i].at;
            return 0;
        }
    return 2;
}
cudaError_t cudaFree(void *at) {
    for (int i = 0; i < MOST * 4; i++)
        if (at && memories[i].at == at) {
            free(at);
            memories[i].at = NULL;
            return 0;
        }
    violation("cudaFree of memory that is not allocated");
    return 1;
}
cudaError_t cudaMemset(void *at, int value, size_t size) {
    struct memory *memory = memory_of(at, size);
    if (!memory || memory->device != current) violation("cudaMemset outside this device's memory");
    memset(at, value, size);
    return 0;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    if (ordered_to_fail("cudaMemcpy")) return 700;
    if (kind != 2) violation("cudaMemcpy in a direction that nobody asked for");
    if (!memory_of(from, size)) violation("cudaMemcpy from outside device memory");
    memcpy(to, from, size);
    return 0;
}
cudaError_t cudaStreamCreate(struct stream **stream) {
    if (ordered_to_fail("cudaStreamCreate")) return 2;
    *stream = malloc(sizeof **stream);
    **stream = (struct stream){0x57AEA111u, current};
    return 0;
}
cudaError_t cudaStreamSynchronize(struct stream *stream) {
    if (ordered_to_fail("cudaStreamSynchronize")) return 700;
    if (!stream || stream->magic != 0x57AEA111u || stream->device != current) violation("a stream of another device");
    if (getenv("FAKE_HANG") && collectives) for (;;) sleep(1);
    return 0;
}
cudaError_t cudaStreamDestroy(struct stream *stream) {
    if (!stream || stream->magic != 0x57AEA111u) violation("destroying no stream");
    stream->magic = 0;
    free(stream);
    return 0;
}

/* ---- NCCL ---- */
const char *ncclGetErrorString(ncclResult_t code) { return code == 1 ? "unhandled cuda error" : code ? "unhandled system error" : "no error"; }
ncclResult_t ncclGetVersion(int *version) { *version = 22707; return 0; }
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    if (ordered_to_fail("ncclGetUniqueId")) return 2;
    for (int i = 0; i < 128; i++) id->internal[i] = (char)(i == 5 ? 0 : i * 7 + 1);
    pair_id = (unsigned)getpid();
    memcpy(id->internal + 8, &pair_id, sizeof pair_id);
    return 0;
}
ncclResult_t ncclCommInitRank(struct comm **comm, int ranks, ncclUniqueId id, int rank) {
    if (ordered_to_fail("ncclCommInitRank")) return 2;
    if (!group) violation("ncclCommInitRank of several devices outside a group hangs for ever");
    memcpy(&pair_id, id.internal + 8, sizeof pair_id);
    for (int i = 0; i < 128; i++)
        if ((i < 8 || i > 11) && id.internal[i] != (char)(i == 5 ? 0 : i * 7 + 1)) violation("the unique id did not arrive whole");
    if (rank < 0 || rank >= ranks || initialized[rank]) violation("a rank that cannot be");
    initialized[rank] = 1;
    waiting_ranks++;
    waiting_total = ranks;
    *comm = malloc(sizeof **comm);
    **comm = (struct comm){0xC0111111u, current, rank, ranks};
    communicators++;
    return 0;
}
ncclResult_t ncclGroupStart(void) { group++; return 0; }
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, struct comm *comm, struct stream *stream) {
    if (ordered_to_fail("ncclAllReduce")) return 1;
    if (!group) violation("ncclAllReduce of several devices outside a group hangs for ever");
    if (!comm || comm->magic != 0xC0111111u) violation("ncclAllReduce without a communicator");
    if (!stream || stream->magic != 0x57AEA111u || stream->device != comm->device) violation("communicator and stream of different devices");
    if (type != 2 || op != 0) violation("not a sum of int32");
    struct memory *from = memory_of(send, count * 4), *to = memory_of(receive, count * 4);
    if (!from || !to || from->device != comm->device || to->device != comm->device) violation("buffers that are too small or elsewhere");
    queue[queued++] = (struct pending){send, receive, count, comm};
    return 0;
}
ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, int type, struct comm *comm, struct stream *stream) {
    if (ordered_to_fail("ncclAllGather")) return 1;
    if (!group) violation("ncclAllGather of several devices outside a group hangs for ever");
    if (!comm || comm->magic != 0xC0111111u) violation("ncclAllGather without a communicator");
    if (!stream || stream->magic != 0x57AEA111u || stream->device != comm->device) violation("communicator and stream of different devices");
    if (type != 2) violation("not int32");
    struct memory *from = memory_of(send, count * 4), *to = memory_of(receive, count * 4 * comm->ranks);
    if (!from || !to || from->device != comm->device || to->device != comm->device) violation("buffers that are too small or elsewhere");
    gathering = 1;
    queue[queued++] = (struct pending){send, receive, count, comm};
    return 0;
}
ncclResult_t ncclGroupEnd(void) {
    if (!group) violation("ncclGroupEnd without a start");
    group--;
    if (waiting_ranks) {
        if (waiting_ranks != waiting_total && !getenv("FAKE_PAIR")) violation("not all ranks came");
        waiting_ranks = 0;
        const char *network = getenv("FAKE_NETWORK");
        char line[256];
        say("NCCL version 2.27.7+cuda13.0");
        snprintf(line, sizeof line, "Using network %s", network ? network : "AWS Libfabric");
        if (!network || network[0]) say(line);
    }
    if (ordered_to_fail("ncclGroupEnd")) return 2;
    if (queued) {
        if (queued != communicators) violation("not all ranks take part");
        size_t part = queue[0].count, count = gathering ? part * queue[0].comm->ranks : part;
        uint32_t *sums = calloc(count, 4);
        for (size_t i = 0; i < part; i++)
            for (int r = 0; r < queued; r++) sums[gathering ? queue[r].comm->rank * part + i : i] += ((const uint32_t *)queue[r].send)[i];
        if (queue[0].comm->ranks != queued) meet(sums, count, queue[0].comm->rank);
        for (int r = 0; r < queued; r++) memcpy(queue[r].receive, sums, count * 4);
        free(sums);
        if (getenv("FAKE_WRONG")) ((unsigned char *)queue[queued - 1].receive)[count * 4 - 1] ^= 1;
        queued = gathering = 0;
        collectives++;
    }
    return 0;
}
ncclResult_t ncclCommGetAsyncError(struct comm *comm, ncclResult_t *code) {
    if (!comm || comm->magic != 0xC0111111u) violation("no communicator");
    *code = getenv("FAKE_ASYNC") && collectives ? 6 : 0;
    return 0;
}
ncclResult_t ncclCommDestroy(struct comm *comm) {
    if (!comm || comm->magic != 0xC0111111u) violation("destroying no communicator");
    comm->magic = 0;
    free(comm);
    communicators--;
    return 0;
}
ncclResult_t ncclCommAbort(struct comm *comm) { return ncclCommDestroy(comm); }

__attribute__((destructor)) static void all_given_back(void) {
    for (int i = 0; i < MOST * 4; i++)
        if (memories[i].at) violation("memory was not given back");
    if (communicators) violation("a communicator was not destroyed");
}
