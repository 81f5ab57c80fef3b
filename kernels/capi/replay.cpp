// Replays recorded launches through the CUDA driver's functions, which the caller found: nothing here is linked with it.
#include "../cuzk.h"

namespace {

using Result = int;  // CUresult
using Handle = void *;
using Address = unsigned long long;  // CUdeviceptr
using SetContext = Result (*)(Handle context);
using Launch = Result (*)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream, void **parameters,
                          void **extra);
using RecordEvent = Result (*)(Handle event, Handle stream);
using WaitEvent = Result (*)(Handle stream, Handle event, unsigned flags);
using Fill = Result (*)(Address target, unsigned char value, size_t bytes, Handle stream);
using Copy = Result (*)(Address target, Address source, size_t bytes, Handle stream);
using Fetch = Result (*)(void *target, Address source, size_t bytes, Handle stream);
using ElapsedTime = Result (*)(float *milliseconds, Handle from, Handle to);

constexpr Result not_ready = 600;  // CUDA_ERROR_NOT_READY

constexpr uint32_t most_arguments = 64;
constexpr uint64_t most = uint64_t{1} << 32;  // of anything that is counted

Handle handle(uint64_t value) { return reinterpret_cast<Handle>(static_cast<uintptr_t>(value)); }

template <class Function>
Function function(const void *pointer) {
  return reinterpret_cast<Function>(const_cast<void *>(pointer));
}

uint64_t value_of(const cuzk_argument &argument, const cuzk_replay_values &values) {
  return argument.base == CUZK_CONSTANT ? argument.value : values.bases[argument.base] + argument.value;
}

bool is_argument(const cuzk_argument &argument, const cuzk_replay_values &values) {
  if (argument.size != 4 && argument.size != 8) return false;
  if (argument.base == CUZK_CONSTANT) return argument.size == 8 || argument.value <= UINT32_MAX;
  if (argument.base >= values.base_count) return false;
  const uint64_t base = values.bases[argument.base];
  // 8 bytes from a base are an address, 4 a number.
  if (argument.size == 8) return base != 0 && base + argument.value >= base;
  return value_of(argument, values) <= UINT32_MAX && base <= UINT32_MAX;
}

bool is_address(const cuzk_argument &argument) { return argument.base != CUZK_CONSTANT && argument.size == 8; }

bool is_sound(const cuzk_operation &operation, const cuzk_script &script, const cuzk_replay_values &values) {
  if (operation.stream >= values.stream_count || operation.argument_count > most_arguments) return false;
  if (operation.first_argument > script.argument_count ||
      operation.argument_count > script.argument_count - operation.first_argument)
    return false;
  const cuzk_argument *arguments = script.arguments + operation.first_argument;
  for (uint32_t k = 0; k < operation.argument_count; k++)
    if (!is_argument(arguments[k], values)) return false;
  switch (operation.kind) {
    case CUZK_LAUNCH:
      for (int k = 0; k < 3; k++)
        if (operation.grid[k] == 0 || operation.block[k] == 0) return false;
      return operation.object < script.function_count && script.functions[operation.object];
    case CUZK_RECORD:
    case CUZK_WAIT:
      return operation.argument_count == 0 && operation.object < values.event_count &&
             values.events[operation.object];
    case CUZK_ZERO:
      return operation.argument_count == 1 && is_address(arguments[0]);
    case CUZK_COPY:
    case CUZK_FETCH:
      return operation.argument_count == 2 && is_address(arguments[0]) && is_address(arguments[1]);
    default:
      return false;
  }
}

bool is_driver(const cuzk_driver &d) {
  return d.set_context && d.launch_kernel && d.record_event && d.wait_event && d.fill && d.copy && d.fetch &&
         d.elapsed_time;
}

bool are_sound(const cuzk_script &script, const cuzk_replay_values &values) {
  if (script.operation_count > most || script.argument_count > most || script.function_count > most) return false;
  if ((!script.operations && script.operation_count) || (!script.arguments && script.argument_count)) return false;
  if ((!script.functions && script.function_count) || (!values.streams && values.stream_count)) return false;
  if ((!values.events && values.event_count) || (!values.bases && values.base_count)) return false;
  for (uint64_t k = 0; k < script.operation_count; k++)
    if (!is_sound(script.operations[k], script, values)) return false;
  return true;
}

Result perform(const cuzk_driver &driver, const cuzk_operation &operation, const cuzk_script &script,
               const cuzk_replay_values &values) {
  uint64_t words[most_arguments];
  void *parameters[most_arguments];
  const cuzk_argument *arguments = script.arguments + operation.first_argument;
  for (uint32_t k = 0; k < operation.argument_count; k++) {
    words[k] = value_of(arguments[k], values);  // little-endian: the first bytes are those of a shorter number
    parameters[k] = &words[k];
  }
  const Handle stream = handle(values.streams[operation.stream]);
  switch (operation.kind) {
    case CUZK_LAUNCH:
      return function<Launch>(driver.launch_kernel)(
          handle(script.functions[operation.object]), operation.grid[0], operation.grid[1], operation.grid[2],
          operation.block[0], operation.block[1], operation.block[2], operation.shared_bytes, stream, parameters,
          nullptr);
    case CUZK_RECORD:
      return function<RecordEvent>(driver.record_event)(handle(values.events[operation.object]), stream);
    case CUZK_WAIT:
      return function<WaitEvent>(driver.wait_event)(stream, handle(values.events[operation.object]), 0);
    case CUZK_ZERO:
      return function<Fill>(driver.fill)(words[0], 0, static_cast<size_t>(operation.bytes), stream);
    case CUZK_FETCH:
      return function<Fetch>(driver.fetch)(handle(words[0]), words[1], static_cast<size_t>(operation.bytes), stream);
    default:
      return function<Copy>(driver.copy)(words[0], words[1], static_cast<size_t>(operation.bytes), stream);
  }
}

// The times of one group of events, or not_ready.
Result group_times(ElapsedTime elapsed_time, Handle base, const uint64_t *events, uint32_t size, int64_t *ns) {
  for (uint32_t k = size; k-- > 0;) {
    float milliseconds = 0;
    if (const Result code = elapsed_time(&milliseconds, base, handle(events[k]))) return code;
    ns[k] = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }
  return 0;
}

}  // namespace

extern "C" int cuzk_event_times(const cuzk_driver *driver, uint64_t context, uint64_t base, const uint64_t *events,
                                const uint32_t *sizes, uint64_t groups, int64_t *ns, int *code) {
  if (!driver || !is_driver(*driver) || !context || !base || !code || groups > most) return CUZK_E_ARGUMENT;
  if (groups && (!events || !sizes || !ns)) return CUZK_E_ARGUMENT;
  for (uint64_t g = 0, at = 0; g < groups; at += sizes[g++]) {
    if (sizes[g] == 0) return CUZK_E_ARGUMENT;
    for (uint32_t k = 0; k < sizes[g]; k++)
      if (!events[at + k]) return CUZK_E_ARGUMENT;
  }
  *code = function<SetContext>(driver->set_context)(handle(context));
  if (*code) return CUZK_E_DATA;
  const auto elapsed_time = function<ElapsedTime>(driver->elapsed_time);
  for (uint64_t g = 0; g < groups; g++) {
    *code = group_times(elapsed_time, handle(base), events, sizes[g], ns);
    if (*code && *code != not_ready) return CUZK_E_DATA;
    if (*code)
      for (uint32_t k = 0; k < sizes[g]; k++) ns[k] = CUZK_NOT_OVER;
    events += sizes[g];
    ns += sizes[g];
  }
  *code = 0;
  return CUZK_OK;
}

extern "C" int cuzk_replay(const cuzk_driver *driver, const cuzk_script *script, const cuzk_replay_values *values,
                           int *code, uint64_t *failed) {
  if (!driver || !script || !values || !code || !failed) return CUZK_E_ARGUMENT;
  if (!is_driver(*driver) || !values->context || !are_sound(*script, *values)) return CUZK_E_ARGUMENT;
  *code = function<SetContext>(driver->set_context)(handle(values->context));
  *failed = script->operation_count;
  if (*code) return CUZK_E_DATA;
  for (uint64_t k = 0; k < script->operation_count; k++) {
    *code = perform(*driver, script->operations[k], *script, *values);
    if (*code) {
      *failed = k;
      return CUZK_E_DATA;
    }
  }
  return CUZK_OK;
}
