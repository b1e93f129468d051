#include "emulator/runtime/time_domain.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "emulator/runtime/byte_lock.h"
#include "emulator/runtime/domain_page.h"
#include "emulator/runtime/process_state.h"
#include "emulator/runtime/shared_page.h"

namespace rdmaemu::runtime {
namespace {

// The longest sleep when only a wait for an application prevents a jump.
constexpr Duration kAwaiting = std::chrono::seconds(1);
constexpr Duration kForever = std::chrono::hours(1);

off_t LockOfSlot(size_t slot) { return kSlotLocks + static_cast<off_t>(slot); }

// Returns false if another process has the slot.
bool LockSlot(int fd, size_t slot) {
  return SetLock(fd, F_WRLCK, LockOfSlot(slot)) == Locked::kYes;
}

bool Fill(sockaddr_un& name, const std::string& path) {
  if (path.size() >= sizeof name.sun_path) return false;
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  return true;
}

}  // namespace

OrMessage<std::unique_ptr<TimeDomain>> TimeDomain::Join(const Registry& registry, Kind kind,
                                                        const std::string& host,
                                                        const std::vector<NetAddress>& addresses) {
  std::unique_ptr<TimeDomain> domain(new TimeDomain(registry, kind, host, 0));
  domain->own_addresses_ = addresses;
  if (const OrMessage<void> opened = domain->Open(); !opened) {
    return tl::unexpected(opened.error());
  }
  return domain;
}

OrMessage<std::unique_ptr<TimeDomain>> TimeDomain::JoinProgram(const Registry& registry) {
  const pid_t pid = getpid();
  std::unique_ptr<TimeDomain> domain(
      new TimeDomain(registry, Kind::kProgram, "process-" + std::to_string(pid), pid));
  if (const OrMessage<void> opened = domain->Open(); !opened) {
    return tl::unexpected(opened.error());
  }
  return domain;
}

TimeDomain::TimeDomain(const Registry& registry, Kind kind, std::string host, pid_t program)
    : registry_(registry), kind_(kind), host_(std::move(host)), program_(program) {}

TimeDomain::~TimeDomain() {
  OpenAgainIfClosed();
  if (wake_fd_.IsOpen()) unlink(registry_.WakePath(host_).c_str());
  if (slot_ == kMaxHosts) return;
  std::vector<std::string> others;
  const auto leave = [&](DomainPage& page) {
    DomainSlot& own = page.slots[slot_];
    page.balance -= static_cast<int64_t>(own.sent - own.received);
    own = {};
    page.generation++;
    page.round++;
    ReapDead(page);
    others.clear();
    for (const DomainSlot& slot : page.slots) {
      if (!slot.IsFree()) others.emplace_back(slot.host);
    }
    return true;
  };
  // A process that opens the file now finds no name for it when it gets its turn.
  Change(leave, [&] {
    if (others.empty()) unlink(FilePath().c_str());
  });
  Wake(others);  // others may have waited for this host
}

std::string TimeDomain::FilePath() const {
  const char* const name = kind_ == Kind::kVirtual  ? "/virtual.time"
                           : kind_ == Kind::kManual ? "/manual.time"
                                                    : "/program.time";
  return registry_.directory() + name;
}

bool TimeDomain::FileHasItsName() const {
  struct stat locked, named;
  return fstat(file_.get(), &locked) == 0 && stat(FilePath().c_str(), &named) == 0 &&
         locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
}

OrMessage<void> TimeDomain::Open() {
  const std::string path = FilePath();
  for (;;) {
    file_ = GuestFd(UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)));
    if (!file_.IsOpen()) {
      return tl::unexpected("cannot open " + path + ", in which hosts share their time: " +
                            std::strerror(errno) + "; set RDMAEMU_DIR to a directory of your own");
    }
    const OrMessage<bool> taken = TakeSlot();
    if (!taken) return tl::unexpected(taken.error());
    if (*taken) break;  // else the last host removed the file while we opened it
  }
  return ListenForWakes();
}

void TimeDomain::OpenAgainIfClosed() {
  if (program_ == 0 || (file_.IsOpen() && wake_fd_.IsOpen())) return;
  slot_ = kMaxHosts;
  is_idle_ = false;
  (void)Open();  // the next call tries again
}

OrMessage<bool> TimeDomain::TakeSlot() {
  bool has_name = true, is_full = false;
  const bool is_stored =
      SharedPage<DomainPage>::Update(file_.get(), [&](DomainPage& page, bool is_there) {
        has_name = FileHasItsName();
        if (!has_name) return false;
        if (is_there && IsValid(page)) {
          ReapDead(page);
        } else {
          page = {};
        }
        if (std::ranges::all_of(page.slots, &DomainSlot::IsFree)) page = BeginDomain();
        is_full = !FindSlot(page);
        if (is_full) return false;
        page.slots[slot_] = {};
        TakeSlotIn(page);
        Put(kept_alarm_, page.slots[slot_]);
        WriteAddresses(page);
        ReadAddresses(page);
        offset_ = Duration(page.offset_ns);
        for (size_t i = 0; i < kClocks.size(); i++) {
          clock_bases_[i] = Duration(page.clock_bases_ns[i]);
        }
        return true;
      });
  if (!has_name) {
    slot_ = kMaxHosts;
    return false;
  }
  if (is_full) {
    return tl::unexpected("no more than " + std::to_string(kMaxHosts) +
                          " hosts can share one time; stop some of them, or give this one another"
                          " RDMAEMU_DIR");
  }
  if (!is_stored) {
    const int error = errno;
    return tl::unexpected(
        "cannot write " + FilePath() + ": " + std::strerror(error) +
        (error == EFBIG ? "; allow larger files (ulimit -f)" : "; is the file system full?"));
  }
  return true;
}

bool TimeDomain::FindSlot(const DomainPage& page) {
  // A process that has executed another program keeps its slot.
  for (size_t i = 0; program_ != 0 && slot_ == kMaxHosts && i < kMaxHosts; i++) {
    if (page.slots[i].IsFree() || page.slots[i].program != program_) continue;
    LockSlot(file_.get(), i);
    slot_ = i;
    kept_alarm_ = NextAlarm(page.slots[i], page.offset_ns);
  }
  // A slot that looks free may belong to a living host if another process damaged the file.
  for (size_t i = 0; slot_ == kMaxHosts && i < kMaxHosts; i++) {
    if (page.slots[i].IsFree() && LockSlot(file_.get(), i)) slot_ = i;
  }
  return slot_ != kMaxHosts;
}

void TimeDomain::TakeSlotIn(DomainPage& page) const {
  DomainSlot& own = page.slots[slot_];
  if (!own.IsFree()) return;
  own = {};
  own.is_used = 1;
  own.program = program_;
  own.begun = program_ == 0 ? 0 : StateOf(program_).value_or(ProcessState{}).begun;
  host_.copy(own.host, sizeof own.host - 1);
}

OrMessage<void> TimeDomain::ListenForWakes() {
  const std::string path = registry_.WakePath(host_);
  sockaddr_un name{};
  unlink(path.c_str());  // left by a host that died: we hold its lock
  wake_fd_ = GuestFd(UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!wake_fd_.IsOpen() || !Fill(name, path) ||
      bind(wake_fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    return tl::unexpected("cannot listen on " + path + ": " + std::strerror(errno) +
                          "; set RDMAEMU_DIR to a directory of your own");
  }
  return {};
}

// ---- the file

bool TimeDomain::Read(DomainPage& page) const {
  return SharedPage<DomainPage>::Read(file_.get(), page) && IsValid(page);
}

template <typename Edit, typename Stored>
bool TimeDomain::Change(Edit edit, Stored stored) {
  if (slot_ == kMaxHosts) return false;
  return SharedPage<DomainPage>::Update(
      file_.get(),
      [&](DomainPage& page, bool is_there) { return is_there && IsValid(page) && edit(page); },
      stored);
}

bool TimeDomain::LooksAlive(DomainPage& page, size_t slot) const {
  if (slot == slot_) return true;
  DomainSlot& member = page.slots[slot];
  if (member.program != 0) {
    const std::optional<ProcessState> state = StateOf(member.program);
    member.is_stopped = state && state->is_stopped() ? 1 : 0;
    return state && state->begun == member.begun;
  }
  return MayBeLocked(file_.get(), LockOfSlot(slot));
}

void TimeDomain::ReapDead(DomainPage& page) const {
  for (size_t i = 0; i < kMaxHosts; i++) {
    DomainSlot& slot = page.slots[i];
    if (slot.IsFree() || LooksAlive(page, i)) continue;
    if (slot.program != 0) unlink(registry_.WakePath(slot.host).c_str());
    page.round++;
    page.balance -= static_cast<int64_t>(slot.sent - slot.received);
    page.generation++;
    slot = {};
  }
}

void TimeDomain::WriteAddresses(DomainPage& page) const {
  page.generation++;
  page.slots[slot_].addresses = 0;
  const size_t count = std::min(own_addresses_.size(), kMaxAddressesPerHost);
  if (count == 0) return;  // a program, whose RLIMIT_FSIZE may be too small
  AddressList list{};
  std::copy_n(own_addresses_.begin(), count, list.addresses.begin());
  const off_t at = kAddressesAt + static_cast<off_t>(slot_ * sizeof list);
  const bool written = pwrite(file_.get(), &list, sizeof list, at) == sizeof list;
  if (written) page.slots[slot_].addresses = static_cast<uint32_t>(count);
}

void TimeDomain::ReadAddresses(const DomainPage& page) {
  known_.clear();
  for (size_t i = 0; i < kMaxHosts; i++) {
    if (page.slots[i].IsFree() || page.slots[i].addresses == 0) continue;
    AddressList list;
    const off_t at = kAddressesAt + static_cast<off_t>(i * sizeof list);
    if (pread(file_.get(), &list, sizeof list, at) != sizeof list) continue;
    known_.insert(known_.end(), list.addresses.begin(),
                  list.addresses.begin() + page.slots[i].addresses);
  }
  std::ranges::sort(known_);
  generation_ = page.generation;
}

// ---- time

Time TimeDomain::TimeOf(const DomainPage& page, Time real) const {
  return (kind_ == Kind::kVirtual ? real : Time{}) + Duration(page.offset_ns);
}

Time TimeDomain::At(Time real) const { return (kind_ == Kind::kVirtual ? real : Time{}) + offset_; }

Duration TimeDomain::RealTime(Duration length) const {
  return kind_ == Kind::kVirtual || length <= Duration::zero() ? length : Duration::max();
}

TimeDomain::Answer TimeDomain::BecomeIdle(Time real, const Idle& idle) {
  OpenAgainIfClosed();
  std::vector<std::string> to_wake;
  Answer answer{false, kLookAgain};
  // If the file is damaged, virtual time only runs.
  const bool is_stored = Change([&](DomainPage& page) {
    TakeSlotIn(page);  // another host may have started a new file
    DomainSlot& own = page.slots[slot_];
    own.is_idle = 1;
    own.is_stopped = 0;
    own.idle_since_ns = ToNs(real);
    own.next_deadline_ns =
        idle.next_deadline ? std::max<int64_t>(ToNs(*idle.next_deadline), 0) : kNever;
    own.awaits_application = idle.awaits_application ? 1 : 0;
    own.looked_in = look_round_;
    if (idle.did_work) {
      page.round++;
      // A host looks after it has worked. A program's threads may have worked after the program's
      // look. For example, a thread started a process and waits for it.
      if (program_ == 0) own.looked_in = page.round;
    }
    own.sent = sent_;
    own.received = received_;
    is_idle_ = true;
    ReapDead(page);
    // `to_wake` keeps the members of an earlier call, whose page may be the one that we have now.
    answer = Decide(page, real, to_wake);
    return true;
  });
  is_damaged_ = !is_stored && slot_ != kMaxHosts;
  Wake(to_wake);
  return answer;
}

std::optional<std::string> TimeDomain::TakeDamage() {
  if (!is_damaged_ || std::exchange(is_damage_told_, true)) return std::nullopt;
  return "another process has cut or overwritten " + FilePath() + ", so " +
         (kind_ == Kind::kVirtual ? "time no longer jumps" : "time stands still") +
         "; end the programs and hosts that use this directory, and start them again";
}

bool TimeDomain::LookAgain() {
  DomainPage page;
  if (!Read(page) || Duration(page.offset_ns) <= offset_) return false;
  offset_ = Duration(page.offset_ns);
  return true;
}

void TimeDomain::BecomeBusy() {
  OpenAgainIfClosed();
  if (!is_idle_) return;
  is_idle_ = false;
  Change([&](DomainPage& page) {
    page.slots[slot_].is_idle = 0;
    look_round_ = page.round;
    offset_ = std::max(offset_, Duration(page.offset_ns));
    if (page.generation != generation_) ReadAddresses(page);
    return true;
  });
}

void TimeDomain::BeginLook() {
  OpenAgainIfClosed();
  if (DomainPage page; Read(page)) look_round_ = page.round;
}

void TimeDomain::KeepAlarm(const Alarm& alarm) {
  OpenAgainIfClosed();
  Change([&](DomainPage& page) {
    Put(alarm, page.slots[slot_]);
    return true;
  });
}

TimeDomain::Answer TimeDomain::Decide(DomainPage& page, Time real,
                                      std::vector<std::string>& to_wake) const {
  int64_t next = kNever;
  bool awaits = false;
  for (const DomainSlot& slot : page.slots) {
    if (!slot.IsAwaited()) continue;
    if (slot.is_idle == 0) return {false, kLookAgain};
    next = std::min(next, slot.next_deadline_ns);
    awaits |= slot.awaits_application != 0;
  }
  if (kind_ == Kind::kProgram && !AllHaveLooked(page, to_wake)) return {false, kLookAgain};
  Duration look_again = kLookAgain;
  if (!NothingIsOnItsWay(page, real, to_wake, look_again)) return {false, look_again};
  return Move(page, TimeOf(page, real), FromNs(next), awaits, to_wake);
}

std::vector<TimeDomain::Stranger> TimeDomain::Strangers(const std::vector<pid_t>& processes) const {
  DomainPage page;
  if (processes.empty() || !Read(page)) return {};
  std::vector<Stranger> strangers;
  for (const pid_t process : processes) {
    const bool is_member = std::ranges::any_of(page.slots, [&](const DomainSlot& slot) {
      return !slot.IsFree() && slot.program == process;
    });
    const bool has_ended = !StateOf(process);
    if (!is_member || has_ended) strangers.push_back({process, has_ended});
  }
  return strangers;
}

bool TimeDomain::AllHaveLooked(const DomainPage& page, std::vector<std::string>& to_wake) const {
  for (const DomainSlot& slot : page.slots) {
    if (slot.IsAwaited() && slot.looked_in != page.round) to_wake.emplace_back(slot.host);
  }
  return to_wake.empty();
}

// A balance that differs from the last one means a datagram that is in flight or lost. The datagram
// is lost when kTransit has passed and every host has checked its sockets since then.
bool TimeDomain::NothingIsOnItsWay(DomainPage& page, Time real, std::vector<std::string>& to_wake,
                                   Duration& look_again) const {
  int64_t balance = 0;
  for (const DomainSlot& slot : page.slots) {
    if (!slot.IsFree()) balance += static_cast<int64_t>(slot.sent - slot.received);
  }
  if (balance == page.balance) {
    page.mismatch_ns = 0;
    return true;
  }
  if (page.mismatch_ns == 0 || page.mismatch != balance || page.mismatch_ns > ToNs(real)) {
    page.mismatch = balance;
    page.mismatch_ns = ToNs(real);
    page.asked_ns = 0;
  }
  const Duration waited = real - FromNs(page.mismatch_ns);
  if (waited < kTransit) {
    look_again = kTransit - waited;
    return false;
  }
  if (page.asked_ns == 0 || page.asked_ns > ToNs(real)) {
    page.asked_ns = ToNs(real);
    for (size_t i = 0; i < kMaxHosts; i++) {
      if (!page.slots[i].IsFree() && i != slot_) to_wake.emplace_back(page.slots[i].host);
    }
  }
  const bool all_looked = std::ranges::all_of(page.slots, [&](const DomainSlot& slot) {
    return !slot.IsAwaited() || slot.idle_since_ns >= page.asked_ns;
  });
  if (!all_looked) return false;
  page.balance = balance;
  page.mismatch_ns = 0;
  return true;
}

TimeDomain::Answer TimeDomain::Move(DomainPage& page, Time now, Time next, bool awaits,
                                    std::vector<std::string>& to_wake) const {
  const bool is_manual = kind_ == Kind::kManual;
  // Hosts with a deadline in the past must look before time advances.
  if (next <= now) {
    WakeBefore(page, now, to_wake);
    return {FromNs(page.slots[slot_].next_deadline_ns) <= now, kLookAgain};
  }
  if (kind_ == Kind::kVirtual && awaits) return {false, kAwaiting};
  const bool has_next = next != FromNs(kNever);
  if (!is_manual && !has_next) return {false, kForever};
  Time to = next;
  if (is_manual) {
    const Time target = FromNs(page.target_ns);
    if (target <= now) return {false, kForever};
    if (page.until_idle != 0 && (!has_next || awaits || next > target)) {
      page.target_ns = ToNs(now);
      page.until_idle = 0;
      return {false, kForever};
    }
    to = std::min(next, target);
  }
  const Duration by = to - now;
  if (by > kMaxMove || Duration(page.offset_ns) + by > kMaxTime) return {false, kForever};
  page.offset_ns += by.count();
  page.round++;
  // Also wake up hosts with later deadlines, because their sleep time was computed before the jump.
  WakeBefore(page, FromNs(kNever - 1), to_wake);
  return {FromNs(page.slots[slot_].next_deadline_ns) <= to, kLookAgain};
}

void TimeDomain::WakeBefore(const DomainPage& page, Time deadline,
                            std::vector<std::string>& to_wake) const {
  for (size_t i = 0; i < kMaxHosts; i++) {
    const DomainSlot& slot = page.slots[i];
    if (slot.IsFree() || i == slot_ || FromNs(slot.next_deadline_ns) > deadline) continue;
    to_wake.emplace_back(slot.host);
  }
}

// ---- waking

void TimeDomain::Wake(const std::vector<std::string>& hosts) const {
  for (const std::string& host : hosts) {
    sockaddr_un name{};
    if (!Fill(name, registry_.WakePath(host))) continue;
    // A host with a full queue also wakes up. A host is dead if nobody holds its lock.
    sendto(wake_fd_.get(), "", 1, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&name),
           sizeof name);
  }
}

void TimeDomain::TakeWake() {
  constexpr int kMostAtOnce = 64;
  char bytes[16];
  for (int i = 0; i < kMostAtOnce && recv(wake_fd_.get(), bytes, sizeof bytes, 0) >= 0; i++) {
  }
}

// ---- datagrams and addresses

bool TimeDomain::Knows(const NetAddress& address) const {
  return std::ranges::binary_search(known_, address);
}

void TimeDomain::NoteSent(const NetAddress& destination, size_t datagrams) {
  if (Knows(destination)) sent_ += datagrams;
}

void TimeDomain::NoteReceived(const NetAddress& source, size_t datagrams) {
  if (Knows(source)) received_ += datagrams;
}

void TimeDomain::AddAddress(const NetAddress& address) {
  own_addresses_.push_back(address);
  PublishAddresses();
}

void TimeDomain::RemoveAddress(const NetAddress& address) {
  std::erase(own_addresses_, address);
  PublishAddresses();
}

void TimeDomain::PublishAddresses() {
  Change([&](DomainPage& page) {
    WriteAddresses(page);
    ReadAddresses(page);
    return true;
  });
}

// ---- manual

Status TimeDomain::Advance(Duration by) { return SetTarget(by, false); }
Status TimeDomain::RunUntilIdle() { return SetTarget(kMaxMove, true); }

Status TimeDomain::SetTarget(Duration by, bool until_idle) {
  if (kind_ != Kind::kManual) return Fail(EOPNOTSUPP);
  if (by <= Duration::zero() || by > kMaxMove) return Fail(EINVAL);
  const uint64_t move = ++moves_;
  bool is_too_far = false;
  const bool is_stored = Change([&](DomainPage& page) {
    if (page.slots[slot_].moves == move) return true;  // an earlier call's page was taken over
    page.slots[slot_].moves = move;
    const Duration begin =
        until_idle ? Duration(page.offset_ns)
                   : Duration(std::max(page.offset_ns, page.until_idle != 0 ? 0 : page.target_ns));
    is_too_far = begin + by > kMaxTime;
    if (is_too_far) return false;
    page.target_ns = (begin + by).count();
    page.until_idle = until_idle ? 1 : 0;
    return true;
  });
  if (is_too_far) return Fail(EINVAL);
  return is_stored ? Status{} : Fail(EIO);
}

bool TimeDomain::IsMoving() {
  DomainPage page;
  return kind_ == Kind::kManual && Read(page) && page.target_ns > page.offset_ns;
}

}  // namespace rdmaemu::runtime
