// Runs the native library on known answers, without Python: for processors on which no Python is at hand, and under an
// emulator.
//
//   native_selftest VECTORS [PATH]
//
// VECTORS is written by tests/support/selftest_vectors.py. PATH is the code path that must be in use, such as "portable".
// Prints the path and the number of checks; exit code 1 when an answer is wrong, 2 when the file cannot be read.
//
// The file: "cuzkself", then records of 32-bit words (kind, curve, first, second), a 64-bit n, a 32-bit number of blobs
// and the blobs, each a 64-bit length and its bytes; the last blob is the answer. Little-endian.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "../../kernels/cuzk.h"

namespace {

using Bytes = std::vector<unsigned char>;

enum Kind : uint32_t {
  FIELD = 1,         // first: field, second: operation; blobs a, b
  POINT = 2,         // first: group, second: operation; blobs a, b
  TRANSFORM = 3,     // first: log n, second: flags; blob data
  EXTEND = 4,        // first: log n; blob data
  MSM = 5,           // first: group; blobs points, scalars
  PAIRING = 6,       // blobs p, q
  PAIRING_CHECK = 7, // blobs p, q; the answer is one byte
  EVALUATE = 8,      // first: domain; blobs entries, witness; the answer is a, b, c
  POINTS_CHECK = 9,  // first: group; blob points; the answer is the bad index (8 bytes) and the fault (4 bytes)
};

struct Record {
  uint32_t kind = 0, curve = 0, first = 0, second = 0;
  uint64_t n = 0;
  std::vector<Bytes> blobs;

  // Null for an operand that the operation does not have.
  const void *input(size_t i) const { return i + 1 < blobs.size() && !blobs[i].empty() ? blobs[i].data() : nullptr; }
  const Bytes &answer() const { return blobs.back(); }
};

// Memory at a multiple of 64, as scratch and vectors need it.
struct Aligned {
  explicit Aligned(size_t bytes) : data(static_cast<unsigned char *>(aligned_alloc(64, (bytes + 127) / 64 * 64))) {}
  ~Aligned() { free(data); }
  Aligned(const Aligned &) = delete;
  Aligned &operator=(const Aligned &) = delete;
  unsigned char *data;
};

class Reader {
 public:
  explicit Reader(FILE *file) : file_(file) {}
  bool take(void *to, size_t bytes) { return fread(to, 1, bytes, file_) == bytes; }
  bool at_end() {
    const int next = fgetc(file_);
    if (next == EOF) return true;
    ungetc(next, file_);
    return false;
  }
  bool record(Record &r) {
    uint32_t head[4], count = 0;
    if (!take(head, sizeof head) || !take(&r.n, 8) || !take(&count, 4) || count == 0 || count > 8) return false;
    r.kind = head[0], r.curve = head[1], r.first = head[2], r.second = head[3];
    r.blobs.assign(count, Bytes());
    for (Bytes &blob : r.blobs) {
      uint64_t size = 0;
      if (!take(&size, 8) || size > (64u << 20)) return false;
      blob.resize(size);
      if (size && !take(blob.data(), size)) return false;
    }
    return true;
  }

 private:
  FILE *file_;
};

bool matches(const void *found, const Record &r) { return memcmp(found, r.answer().data(), r.answer().size()) == 0; }

bool check_transform(const Record &r) {
  const Bytes &data = r.blobs[0];
  Aligned table(cuzk_ntt_table_bytes(r.curve, r.first)), values(data.size());
  memcpy(values.data, data.data(), data.size());
  if (cuzk_ntt_table(r.curve, r.first, table.data, nullptr) != CUZK_OK) return false;
  const int status = r.kind == EXTEND
                         ? cuzk_coset_extend(r.curve, values.data, r.first, table.data, nullptr)
                         : cuzk_ntt(r.curve, values.data, r.first, static_cast<int>(r.second), table.data, nullptr);
  return status == CUZK_OK && matches(values.data, r);
}

// Both by the fast path and by the plain one.
bool check_msm(const Record &r) {
  const int group = static_cast<int>(r.first);
  const uint64_t bytes = cuzk_msm_scratch_bytes(r.curve, group, r.n, 0);
  Aligned scratch(bytes);
  Bytes out(r.answer().size()), plain(r.answer().size());
  return cuzk_msm(r.curve, group, r.input(0), r.input(1), r.n, out.data(), scratch.data, bytes, nullptr) == CUZK_OK &&
         cuzk_msm_reference(r.curve, group, r.input(0), r.input(1), r.n, plain.data()) == CUZK_OK &&
         matches(out.data(), r) && matches(plain.data(), r);
}

bool check_evaluate(const Record &r) {
  const size_t bytes = size_t(32) * r.first;
  Aligned a(bytes), b(bytes), c(bytes);
  if (cuzk_evaluate(r.curve, r.input(0), r.n, nullptr, r.input(1), r.first, a.data, b.data, c.data, nullptr) != CUZK_OK)
    return false;
  Bytes found(a.data, a.data + bytes);
  found.insert(found.end(), b.data, b.data + bytes);
  found.insert(found.end(), c.data, c.data + bytes);
  return found.size() == r.answer().size() && matches(found.data(), r);
}

bool check_points(const Record &r) {
  uint64_t bad = 0;
  int fault = 0;
  if (cuzk_points_check(r.curve, static_cast<int>(r.first), r.input(0), r.n, 1, &bad, &fault, nullptr) != CUZK_E_DATA)
    return false;
  unsigned char found[12];
  memcpy(found, &bad, 8);
  memcpy(found + 8, &fault, 4);
  return r.answer().size() == sizeof found && matches(found, r);
}

bool check(const Record &r) {
  Bytes out(r.answer().size());
  const int first = static_cast<int>(r.first), second = static_cast<int>(r.second);
  int is_one = 0;
  switch (r.kind) {
    case FIELD:
      return cuzk_field_op(r.curve, first, second, out.data(), r.input(0), r.input(1), r.n, nullptr) == CUZK_OK &&
             matches(out.data(), r);
    case POINT:
      return cuzk_point_op(r.curve, first, second, out.data(), r.input(0), r.input(1), r.n, nullptr) == CUZK_OK &&
             matches(out.data(), r);
    case TRANSFORM:
    case EXTEND:
      return check_transform(r);
    case MSM:
      return check_msm(r);
    case PAIRING:
      return cuzk_pairing(r.curve, r.input(0), r.input(1), out.data(), nullptr) == CUZK_OK && matches(out.data(), r);
    case PAIRING_CHECK:
      return cuzk_pairing_check(r.curve, r.input(0), r.input(1), r.n, &is_one, nullptr) == CUZK_OK &&
             (is_one != 0) == (r.answer()[0] != 0);
    case EVALUATE:
      return check_evaluate(r);
    case POINTS_CHECK:
      return check_points(r);
  }
  return false;
}

int unreadable(const char *path) {
  fprintf(stderr, "native_selftest: %s: cannot be read\n", path);
  return 2;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: native_selftest VECTORS [PATH]\n");
    return 2;
  }
  FILE *file = fopen(argv[1], "rb");
  if (!file) return unreadable(argv[1]);
  Reader reader(file);
  char magic[8];
  if (!reader.take(magic, 8) || memcmp(magic, "cuzkself", 8) != 0) return unreadable(argv[1]);
  int checks = 0, wrong = 0;
  while (!reader.at_end()) {
    Record record;
    if (!reader.record(record)) return unreadable(argv[1]);
    ++checks;
    if (!check(record)) {
      ++wrong;
      fprintf(stderr, "native_selftest: record %d is wrong: kind %u, curve %u, arguments %u %u, n %llu\n", checks,
              record.kind, record.curve, record.first, record.second, static_cast<unsigned long long>(record.n));
    }
  }
  fclose(file);
  printf("%s: %d checks, %d wrong\n", cuzk_isa(), checks, wrong);
  if (argc == 3 && strcmp(argv[2], cuzk_isa()) != 0) {
    fprintf(stderr, "native_selftest: the path in use is %s, expected %s\n", cuzk_isa(), argv[2]);
    return 1;
  }
  return wrong || checks == 0 ? 1 : 0;
}
