#include "shim/layer/checks/section.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/layer/caller.h"
#include "shim/layer/checks/findings.h"
#include "shim/layer/checks/objects.h"

namespace rdmaemu::layer::checks {
namespace {

constexpr int kMaxFrames = 48;

// In static TLS, of which dlopen has a small surplus.
thread_local bool t_is_inside;
thread_local bool t_is_in_handler;

std::atomic<bool> g_is_locked;
Control* g_control;
char g_findings_path[PATH_MAX];
// 1 while the state is consistent. The kernel clears this word in a child of _Fork(3) or clone(2),
// which may have copied the state during a change. The handler of fork() sets it again.
std::atomic<uint32_t>* g_is_whole;
uint32_t g_generation;

void Lock() {
  for (int spins = 0; g_is_locked.exchange(true, std::memory_order_acquire);) {
    if (++spins % 64 == 0) sched_yield();
  }
}
void Unlock() { g_is_locked.store(false, std::memory_order_release); }

struct Described {
  std::string name;
  std::string made_by;
  Site site;
};

struct Finding {
  Rule rule;
  uint32_t number;  // in Control
  const char* call;
  const void* place;
  std::string detail;
  std::vector<Described> objects;
};

// The findings of the current Section, which are stored at its end.
std::vector<Finding>& Pending() {
  static auto* const pending = new std::vector<Finding>;
  return *pending;
}

struct Place {
  Rule rule;
  const void* address;
  bool operator==(const Place&) const = default;
};
struct HashPlace {
  size_t operator()(const Place& place) const {
    return reinterpret_cast<size_t>(place.address) * 31 + static_cast<size_t>(place.rule);
  }
};
// The number of the finding of each rule and place.
std::unordered_map<Place, uint32_t, HashPlace>& Places() {
  static auto* const places = new std::unordered_map<Place, uint32_t, HashPlace>;
  return *places;
}

struct Walk {
  Site site;
  int frames = 0;
  bool is_in_handler = false;
};

_Unwind_Reason_Code WalkFrame(_Unwind_Context* context, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  int is_exact = 0;
  auto address = static_cast<uintptr_t>(_Unwind_GetIPInfo(context, &is_exact));
  // The frame of a function that a signal interrupted has an exact address instead of a return
  // address.
  if (is_exact != 0 && walk.frames > 0) walk.is_in_handler = true;
  if (++walk.frames > kMaxFrames) return _URC_END_OF_STACK;
  if (address == 0) return _URC_END_OF_STACK;
  const auto* const at = reinterpret_cast<const void*>(address - (is_exact != 0 ? 0 : 1));
  if (rdmaemu_layer_is_program(at) && walk.site.count < Site::kMaxFrames) {
    walk.site.frames[walk.site.count++] = at;
  }
  return _URC_NO_REASON;
}

Walk WalkStack() {
  Walk walk;
  _Unwind_Backtrace(WalkFrame, &walk);
  return walk;
}

// Returns whether code is the C library's, which starts programs and threads.
bool IsLibc(const void* address) {
  Dl_info info, libc;
  return dladdr(address, &info) != 0 &&
         dladdr(reinterpret_cast<const void*>(&getenv), &libc) != 0 &&
         info.dli_fbase == libc.dli_fbase;
}

std::vector<std::string> FramesOf(const Site& site) {
  std::vector<std::string> frames;
  for (int i = 0; i < site.count; i++) {
    if (IsLibc(site.frames[i])) continue;
    std::string frame;
    AppendAddress(site.frames[i], frame);
    frames.push_back(std::move(frame));
  }
  return frames;
}

void AppendQuoted(const std::string& text, std::string& out) {
  out += '"';
  for (const char each : text) {
    if (each == '"' || each == '\\') {
      out.append(1, '\\').append(1, each);
    } else {
      out += static_cast<unsigned char>(each) < ' ' ? ' ' : each;
    }
  }
  out += '"';
}

void AppendMember(const char* name, const std::string& text, std::string& out) {
  out.append(",\"").append(name).append("\":");
  AppendQuoted(text, out);
}

void WriteAll(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = write(fd, text.data() + at, text.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    at += static_cast<size_t>(count);
  }
}

void Store(const Finding& finding) {
  const RuleText& text = TextOf(finding.rule);
  std::string place;
  AppendAddress(finding.place, place);
  std::string out = "{\"number\":" + std::to_string(finding.number);
  AppendMember("rule", text.id, out);
  AppendMember("title", text.title, out);
  out += ",\"process\":" + std::to_string(getpid());
  AppendMember("call", finding.call, out);
  AppendMember("place", place, out);
  AppendMember("detail", finding.detail, out);
  out += ",\"objects\":[";
  for (const Described& each : finding.objects) {
    out += &each == finding.objects.data() ? "{\"name\":" : ",{\"name\":";
    AppendQuoted(each.name, out);
    AppendMember("made_by", each.made_by, out);
    out += ",\"created_at\":[";
    const std::vector<std::string> frames = FramesOf(each.site);
    for (const std::string& frame : frames) {
      if (&frame != frames.data()) out += ",";
      AppendQuoted(frame, out);
    }
    out += "]}";
  }
  out += "]";
  AppendMember("source", text.source, out);
  AppendMember("mend", text.mend, out);
  out += "}\n";
  const int fd = open(g_findings_path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  WriteAll(fd, out);
  close(fd);
}

// Stores findings. Each system call here is a cancellation point.
void Emit(const std::vector<Finding>& findings) {
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  for (const Finding& finding : findings) Store(finding);
  pthread_setcancelstate(before, nullptr);
}

void Add(Rule rule, const char* call, const void* place, uint64_t times, const char* detail,
         std::initializer_list<const Object*> objects) {
  auto& places = Places();
  const Place key{rule, place};
  if (const auto known = places.find(key); known != places.end()) {
    g_control->times[known->second].fetch_add(times, std::memory_order_relaxed);
    return;
  }
  // The first finding beyond the limit counts as lost, and fails the run.
  if (g_control->findings.load() > kMaxFindings) return;
  const uint32_t number = g_control->findings.fetch_add(1);
  if (number >= kMaxFindings) return;
  g_control->times[number].store(times, std::memory_order_relaxed);
  places.emplace(key, number);
  Finding finding{rule, number, call, place, detail, {}};
  for (const Object* const each : objects) {
    if (each == nullptr) continue;
    finding.objects.push_back({NameOf(*each), each->made_by, each->site});
  }
  Pending().push_back(std::move(finding));
}

void BeforeFork() {
  t_is_inside = true;
  if (g_control != nullptr) Lock();
}
void AfterFork() {
  if (g_control != nullptr) Unlock();
  t_is_inside = false;
}
void InChild() {
  g_generation++;
  g_is_whole->store(1);
  AfterFork();
}

}  // namespace

const RuleText& TextOf(Rule rule) {
  static constexpr RuleText kTexts[] = {
#define RULE(name, id, title, meaning, source, mend) {id, title, meaning, source, mend},
#include "shim/layer/checks/rules.inc"
#undef RULE
  };
  return kTexts[static_cast<size_t>(rule)];
}

Section::Section() {
  if (t_is_inside) {
    g_control->skipped.fetch_add(1, std::memory_order_relaxed);
    is_entered_ = false;
    return;
  }
  is_entered_ = g_is_whole->load(std::memory_order_relaxed) == 1;
  if (!is_entered_) return;
  t_is_inside = true;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  Lock();
  if (t_is_in_handler) {
    t_is_in_handler = false;
    Report(Rule::kTHREAD_006, "the call", nullptr, nullptr, nullptr,
           "a signal interrupted the thread, and the handler made this call");
  }
}

Section::~Section() {
  if (is_entered_) {
    std::vector<Finding> findings;
    if (!Pending().empty()) findings.swap(Pending());
    Unlock();
    if (!findings.empty()) Emit(findings);
    { std::vector<Finding>().swap(findings); }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    t_is_inside = false;
  }
  errno = error_;
}

Site CallSite() {
  if (t_is_inside) return {};
  Walk walk = WalkStack();
  if (walk.is_in_handler) t_is_in_handler = true;
  return walk.site;
}

void CheckHandler(const char* call) {
  // A place that is not in the table yet needs one walk of the stack. Two places that share an
  // entry need one walk at each call at worst.
  static std::atomic<const void*> seen[1024];
  const void* const place = rdmaemu_layer_caller;
  const auto number = reinterpret_cast<uintptr_t>(place);
  std::atomic<const void*>& entry = seen[(number ^ number >> 10) % 1024];
  if (entry.load(std::memory_order_relaxed) == place || t_is_inside) return;
  entry.store(place, std::memory_order_relaxed);
  if (!WalkStack().is_in_handler) return;
  const Section section;
  if (!section) return;
  Report(Rule::kTHREAD_006, call, nullptr, nullptr, nullptr,
         "a signal interrupted the thread, and the handler made this call");
}

const void* CallPlace() { return static_cast<const char*>(rdmaemu_layer_caller) - 1; }

void Report(Rule rule, const char* call, const Object* first, const Object* second,
            const Object* third, const char* format, ...) {
  char detail[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  Add(rule, call, CallPlace(), 1, detail, {first, second, third});
}

void ReportAt(Rule rule, const char* call, const void* place, const Object* first,
              const Object* second, const char* format, ...) {
  char detail[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  Add(rule, call, place, 1, detail, {first, second});
}

void ReportLeft(Rule rule, const Object& object, uint64_t times) {
  char detail[128];
  snprintf(detail, sizeof detail, "left of this place: %llu",
           static_cast<unsigned long long>(times));
  Add(rule, object.made_by, object.site.count > 0 ? object.site.frames[0] : nullptr, times, detail,
      {&object});
}

void AppendAddress(const void* address, std::string& out) {
  Dl_info info;
  link_map* map = nullptr;
  char text[64];
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      info.dli_fname == nullptr) {
    snprintf(text, sizeof text, "%p", address);
    out += text;
    return;
  }
  const char* const slash = strrchr(info.dli_fname, '/');
  out += slash == nullptr ? info.dli_fname : slash + 1;
  snprintf(text, sizeof text, "+0x%lx",
           static_cast<unsigned long>(reinterpret_cast<uintptr_t>(address) - map->l_addr));
  out += text;
  if (info.dli_sname != nullptr) out.append(" (").append(info.dli_sname).append(")");
}

void NoteUnwatched(int error) { g_control->watch_error.store(error, std::memory_order_relaxed); }

uint32_t Generation() { return g_generation; }

void OpenFindings() {
  const char* const directory = getenv("RDMAEMU_LAYER_CHECKS_DIRECTORY");
  int fd = -1;
  if (directory != nullptr && strlen(directory) < PATH_MAX - 64) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, kControlName);
    snprintf(g_findings_path, sizeof g_findings_path, "%s/%s", directory, kFindingsName);
    fd = open(path, O_RDWR | O_CLOEXEC);
  }
  void* const memory =
      fd < 0 ? MAP_FAILED
             : mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const word =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || word == MAP_FAILED) {
    fprintf(stderr,
            "rdmaemu: the usage checks are off: cannot open the directory of the findings; start "
            "the program by "
            "rdmaemu run\n");
    _exit(127);
  }
  madvise(word, page, MADV_WIPEONFORK);
  g_control = static_cast<Control*>(memory);
  g_control->processes.fetch_add(1);
  g_is_whole = new (word) std::atomic<uint32_t>(1);
  pthread_atfork(BeforeFork, AfterFork, InChild);
}

}  // namespace rdmaemu::layer::checks
