/* The two stores of the bare server: a folder with one file per object, and one SQLite transaction with one row per object.
 *
 * The system calls, pragmas and table are those of Bearlake's local stores. A flush is stored in a thread of its own, object first and commit
 * second; with --inline in the event loop's thread. SQLite is the shared library that Python uses, opened at run time: no headers needed. */
#ifndef BENCH_BARE_STORE_H
#define BENCH_BARE_STORE_H

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "bare.h"

enum { FILE_MODE = 0640, FOLDER_MODE = 0750, PARTS_PER_CALL = 1024, KEY_BYTES = 64, PATH_BYTES = 4096 };
enum { SQLITE_OK = 0, SQLITE_ROW = 100, SQLITE_DONE = 101 };

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

static struct {
  int (*open)(const char *, sqlite3 **);
  int (*exec)(sqlite3 *, const char *, void *, void *, char **);
  int (*prepare)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
  int (*bind_int64)(sqlite3_stmt *, int, int64_t);
  int (*bind_text)(sqlite3_stmt *, int, const char *, int, void *);
  int (*bind_blob)(sqlite3_stmt *, int, const void *, int, void *);
  int (*step)(sqlite3_stmt *);
  int (*reset)(sqlite3_stmt *);
  const char *(*errmsg)(sqlite3 *);
} sqlite;

/* Counts that the caller reads from the file `counts`: objects, their bytes, commits. */
static uint64_t *counts;
static sqlite3 *database;
static sqlite3_stmt *insert;
static int64_t log_position;
static uint64_t random_state;
static char wal_folder[PATH_BYTES];
static flush *stored_flush; /* handed to the thread, and back */
static sem_t work;
static int done_event = -1;

static void *function_of(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) leave(1, "%s: %s", name, dlerror());
  return found;
}

static void load_sqlite(void) {
  void *library = dlopen("libsqlite3.so.0", RTLD_NOW);
  if (!library) leave(1, "%s", dlerror());
  *(void **)&sqlite.open = function_of(library, "sqlite3_open");
  *(void **)&sqlite.exec = function_of(library, "sqlite3_exec");
  *(void **)&sqlite.prepare = function_of(library, "sqlite3_prepare_v2");
  *(void **)&sqlite.bind_int64 = function_of(library, "sqlite3_bind_int64");
  *(void **)&sqlite.bind_text = function_of(library, "sqlite3_bind_text");
  *(void **)&sqlite.bind_blob = function_of(library, "sqlite3_bind_blob");
  *(void **)&sqlite.step = function_of(library, "sqlite3_step");
  *(void **)&sqlite.reset = function_of(library, "sqlite3_reset");
  *(void **)&sqlite.errmsg = function_of(library, "sqlite3_errmsg");
}

static void open_database(void) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/metadata.db", option.folder);
  load_sqlite();
  static const char prepare[] =
      "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;"
      "CREATE TABLE log (position INTEGER PRIMARY KEY, kind INTEGER NOT NULL, created_ms INTEGER NOT NULL, token TEXT UNIQUE,"
      " object_size INTEGER, slices BLOB, sequences BLOB, outcomes BLOB) STRICT";
  static const char row[] = "INSERT INTO log VALUES (?, 1, ?, ?, ?, ?, ?, ?)";
  if (sqlite.open(path, &database) || sqlite.exec(database, prepare, NULL, NULL, NULL) ||
      sqlite.prepare(database, row, -1, &insert, NULL))
    leave(1, "%s: %s", path, sqlite.errmsg(database));
}

static void sync_folder(const char *folder) {
  int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 || fsync(descriptor)) leave(1, "%s: %s", folder, strerror(errno));
  close(descriptor);
}

static void make_folder(const char *folder, const char *parent) {
  if (mkdir(folder, FOLDER_MODE) && errno != EEXIST) leave(1, "%s: %s", folder, strerror(errno));
  sync_folder(parent);
}

static uint64_t next_random(void) { /* xorshift64* */
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 2685821657736338717u;
}

/* wal/<hour>/<UUIDv7>, as Bearlake's keys; makes the folder of the hour when it begins. */
static void next_key(char *key, uint64_t now_ms) {
  static char folder[PATH_BYTES + KEY_BYTES], hour[16];
  static uint64_t number;
  if (now_ms / 3600000 != number) {
    number = now_ms / 3600000;
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(hour, sizeof hour, "%Y%m%d%H", &utc);
    snprintf(folder, sizeof folder, "%s/%s", wal_folder, hour);
    make_folder(folder, wal_folder);
  }
  uint64_t a = next_random(), b = next_random();
  snprintf(key, KEY_BYTES, "wal/%s/%08x-%04x-7%03x-%04x-%012llx", hour, (unsigned)(now_ms >> 16), (unsigned)(now_ms & 0xffff),
           (unsigned)(a & 0xfff), (unsigned)(0x8000 | (a >> 16 & 0x3fff)), (unsigned long long)(b & 0xffffffffffff));
}

static void write_all(int descriptor, struct iovec *parts, size_t count) {
  while (count) {
    ssize_t n = writev(descriptor, parts, count > PARTS_PER_CALL ? PARTS_PER_CALL : (int)count);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) leave(1, "write: %s", strerror(errno));
    size_t left = (size_t)n;
    while (count && left >= parts->iov_len) {
      left -= parts->iov_len;
      parts++;
      count--;
    }
    if (count) {
      parts->iov_base = (uint8_t *)parts->iov_base + left;
      parts->iov_len -= left;
    }
  }
}

/* A file without a name, written and synced; then its name, and the sync of the folder. */
static void put_object(flush *f, const char *key) {
  char target[PATH_BYTES + KEY_BYTES], folder[PATH_BYTES + KEY_BYTES], self[64];
  snprintf(target, sizeof target, "%s/%s", option.folder, key);
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(target, '/') - target), target);
  int descriptor = open(folder, O_WRONLY | O_CLOEXEC | O_TMPFILE, FILE_MODE);
  if (descriptor < 0) leave(1, "%s: %s", folder, strerror(errno));
  write_all(descriptor, f->parts, f->part_count);
  snprintf(self, sizeof self, "/proc/self/fd/%d", descriptor);
  if (fdatasync(descriptor) || linkat(AT_FDCWD, self, AT_FDCWD, target, AT_SYMLINK_FOLLOW))
    leave(1, "%s: %s", target, strerror(errno));
  close(descriptor);
  sync_folder(folder);
}

static void commit_object(flush *f, const char *key, uint64_t now_ms) {
  const uint8_t *slices = f->rows, *sequences = slices + f->slices_bytes, *outcomes = sequences + f->sequences_bytes;
  bool failed = sqlite.bind_int64(insert, 1, ++log_position) || sqlite.bind_int64(insert, 2, (int64_t)now_ms) ||
                sqlite.bind_text(insert, 3, key, -1, NULL) || sqlite.bind_int64(insert, 4, (int64_t)f->object_bytes) ||
                sqlite.bind_blob(insert, 5, slices, (int)f->slices_bytes, NULL) ||
                sqlite.bind_blob(insert, 6, sequences, (int)f->sequences_bytes, NULL) ||
                sqlite.bind_blob(insert, 7, outcomes, (int)f->outcomes_bytes, NULL) || sqlite.step(insert) != SQLITE_DONE;
  if (failed || sqlite.reset(insert)) leave(1, "commit: %s", sqlite.errmsg(database));
}

/* Object first, commit second. */
static void store(flush *f) {
  char key[KEY_BYTES];
  uint64_t now_ms = now_ns(CLOCK_REALTIME) / 1000000;
  next_key(key, now_ms);
  put_object(f, key);
  commit_object(f, key, now_ms);
  counts[0]++;
  counts[1] += f->object_bytes;
  counts[2]++;
}

static void *store_forever(void *nothing) {
  for (;;) {
    while (sem_wait(&work)) {}
    store(stored_flush);
    if (eventfd_write(done_event, 1)) leave(1, "eventfd: %s", strerror(errno));
  }
  return nothing;
}

/* Lets the thread store `f`; `done_event` becomes readable when it has. One flush at a time. */
static void store_begin(flush *f) {
  stored_flush = f;
  sem_post(&work);
}

static void open_stores(void) {
  char path[PATH_BYTES];
  pthread_t thread;
  snprintf(wal_folder, sizeof wal_folder, "%s/wal", option.folder);
  make_folder(wal_folder, option.folder);
  snprintf(path, sizeof path, "%s/counts", option.folder);
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE);
  if (file < 0 || ftruncate(file, 4096)) leave(1, "%s: %s", path, strerror(errno));
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED) leave(1, "%s: %s", path, strerror(errno));
  close(file);
  random_state = now_ns(CLOCK_REALTIME) | 1;
  open_database();
  done_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (done_event < 0 || sem_init(&work, 0, 0) || pthread_create(&thread, NULL, store_forever, NULL))
    leave(1, "cannot start a thread");
}

#endif
