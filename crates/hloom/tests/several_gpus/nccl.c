/* NCCL without GPUs, for tests: ranks give each other files in the folder STUB_FOLDER, so that threads and processes are
 * alike. It reduces f32 and 32-bit integers by sums. A rank that is named by STUB_ASTRAY does nothing and says that all is
 * well; who waits for it leaves a file `hang`, after which nothing that the driver has on a stream is over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, IN_PROGRESS = 7 };
enum { PATH = 4096, MAX_RANKS = 16, MAX_CALLS = 256 };
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE };

typedef struct { char text[128]; } unique_id;
typedef struct { size_t size; unsigned magic, version; int blocking; } config;
typedef struct {
    char name[128];
    int size, rank;
    /* How often it is still under way when it is asked. */
    int asked;
    long collectives, sent[MAX_RANKS], received[MAX_RANKS];
} communicator;
typedef struct { enum kind kind; const void *from; void *to; size_t count; int type, peer; communicator *of; } call;

static __thread call calls[MAX_CALLS];
static __thread int count_of_calls;

static size_t bytes_of(const call *c) { return c->count * (size_t[]){1, 1, 4, 4, 8, 8, 2, 4, 8, 2}[c->type]; }

int ncclGetVersion(int *version) {
    const char *said = getenv("STUB_NCCL_VERSION");
    *version = said ? atoi(said) : 22105;
    return SUCCESS;
}
int ncclGetUniqueId(unique_id *id) {
    static int ids;
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "clique.%d.%d", getpid(), __sync_fetch_and_add(&ids, 1));
    return SUCCESS;
}
int ncclCommInitRankConfig(communicator **made, int size, unique_id id, int rank, const config *config) {
    if (config->magic != 0xcafebeef || config->size != 24 || config->version != 21400 || config->blocking != 0)
        return INVALID_ARGUMENT;
    *made = calloc(1, sizeof **made);
    memcpy((*made)->name, id.text, sizeof id.text);
    (*made)->size = size, (*made)->rank = rank, (*made)->asked = 5;
    return IN_PROGRESS;
}
int ncclCommGetAsyncError(communicator *c, int *state) {
    *state = c->asked > 0 ? IN_PROGRESS : SUCCESS;
    c->asked -= c->asked > 0;
    return SUCCESS;
}
int ncclCommAbort(communicator *c) { return SUCCESS; }
const char *ncclGetErrorString(int result) { return "the stub of NCCL"; }
const char *ncclGetLastError(communicator *c) { return ""; }

static int add(call c) {
    if (count_of_calls == MAX_CALLS) return SYSTEM_ERROR;
    calls[count_of_calls++] = c;
    return SUCCESS;
}
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, communicator *c, void *stream) {
    return op ? INVALID_ARGUMENT : add((call){ALL_REDUCE, from, to, count, type, 0, c});
}
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, communicator *c, void *stream) {
    return op ? INVALID_ARGUMENT : add((call){REDUCE_SCATTER, from, to, count, type, 0, c});
}
int ncclAllGather(const void *from, void *to, size_t count, int type, communicator *c, void *stream) {
    return add((call){ALL_GATHER, from, to, count, type, 0, c});
}
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, communicator *c, void *stream) {
    return add((call){BROADCAST, from, to, count, type, root, c});
}
int ncclSend(const void *from, size_t count, int type, int peer, communicator *c, void *stream) {
    return add((call){SEND, from, NULL, count, type, peer, c});
}
int ncclRecv(void *to, size_t count, int type, int peer, communicator *c, void *stream) {
    return add((call){RECEIVE, NULL, to, count, type, peer, c});
}

/* The file of what a rank gives: to one other in a message, or to all in a collective. */
static void file_of(char *path, const communicator *c, int from, int to, long number) {
    snprintf(path, PATH, "%s/%s.%d.%d.%ld", getenv("STUB_FOLDER"), c->name, from, to, number);
}
static void give(const char *path, const void *from, size_t bytes) {
    char whole[PATH + 8];
    snprintf(whole, sizeof whole, "%s.part", path);
    FILE *file = fopen(whole, "w");
    fwrite(from, 1, bytes, file);
    fclose(file);
    rename(whole, path);
}
static int take(const char *path, void *to, size_t bytes) {
    for (int tries = 0; tries < 20000; tries++) {
        FILE *file = fopen(path, "r");
        if (file) {
            size_t found = fread(to, 1, bytes, file);
            fclose(file);
            return found == bytes ? SUCCESS : INVALID_ARGUMENT;
        }
        if (tries > 600 && getenv("STUB_ASTRAY")) {
            char hang[PATH];
            snprintf(hang, PATH, "%s/hang", getenv("STUB_FOLDER"));
            give(hang, "", 0);
            return SUCCESS;
        }
        usleep(500);
    }
    return SYSTEM_ERROR;
}
static void add_to(void *sum, const void *other, size_t count, int type) {
    for (size_t n = 0; n < count; n++)
        if (type == 7) ((float *)sum)[n] += ((const float *)other)[n];
        else ((unsigned *)sum)[n] += ((const unsigned *)other)[n];
}

static int collective(const call *c, long number) {
    communicator *of = c->of;
    size_t bytes = bytes_of(c), given = c->kind == REDUCE_SCATTER ? bytes * of->size : bytes;
    char path[PATH], *all = malloc(given * of->size);
    int result = SUCCESS;
    for (int rank = 0; rank < of->size && result == SUCCESS; rank++) {
        file_of(path, of, rank, -1, number);
        result = take(path, all + rank * given, given);
    }
    for (int rank = 1; c->kind <= REDUCE_SCATTER && rank < of->size; rank++)
        add_to(all, all + rank * given, given / 4, c->type);
    size_t first = c->kind == REDUCE_SCATTER ? of->rank * bytes : c->kind == BROADCAST ? c->peer * bytes : 0;
    memcpy(c->to, all + first, c->kind == ALL_GATHER ? given * of->size : bytes);
    free(all);
    return result;
}

int ncclGroupStart(void) { return SUCCESS; }
int ncclGroupEnd(void) {
    const char *astray = getenv("STUB_ASTRAY");
    char path[PATH];
    int count = count_of_calls, result = SUCCESS;
    count_of_calls = 0;
    if (count == 0) return SUCCESS;
    communicator *of = calls[0].of;
    if (astray && atoi(astray) == of->rank) return SUCCESS;
    for (int n = 0; n < count; n++) {
        const call *c = &calls[n];
        if (c->kind == SEND) file_of(path, of, of->rank, c->peer, of->sent[c->peer]++);
        if (c->kind < SEND) file_of(path, of, of->rank, -1, of->collectives + n);
        if (c->kind != RECEIVE) give(path, c->from, c->kind == REDUCE_SCATTER ? bytes_of(c) * of->size : bytes_of(c));
    }
    for (int n = 0; n < count && result == SUCCESS; n++) {
        const call *c = &calls[n];
        if (c->kind < SEND) result = collective(c, of->collectives + n);
        if (c->kind != RECEIVE) continue;
        file_of(path, of, c->peer, of->rank, of->received[c->peer]++);
        result = take(path, c->to, bytes_of(c));
    }
    of->collectives += count, of->asked = 3;
    return result == SUCCESS ? IN_PROGRESS : result;
}
