// A host names the place of a form's payload to the program of another host, through a real ring
// and a real segment of shared memory.
#include "emulator/runtime/direct_forms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "emulator/runtime/memfd_segments.h"
#include "emulator/runtime/udp_network.h"
#include "emulator/transport/train_form.h"

namespace rdmaemu::runtime {
namespace {

#if defined(__x86_64__)  // others have no marks, so no references

// Only this test uses these addresses.
const NetAddress kOneHost = NetAddress::Ipv4(0x7f4e0301), kOtherHost = NetAddress::Ipv4(0x7f4e0302);
constexpr size_t kPayload = 8192;
constexpr uint32_t kOwnHost = 815, kProgram = 4711;
const MemoryRange kPlace{0x12345000, kPayload};

class DirectFormsTest : public testing::Test {
 protected:
  DirectFormsTest() {
    EXPECT_NE(mkdtemp(directory_), nullptr);
    for (auto [network, address] :
         {std::pair(&first_, kOneHost), std::pair(&second_, kOtherHost)}) {
      Result<UdpPort> port = UdpPort::Open(address, 0);
      EXPECT_TRUE(port);
      if (!port) continue;
      network->Add(std::move(*port));
      network->ShareQueues(directory_);
      network->ShareRings();
    }
    const Result<Segment> segment = segments_.CreateSegment(64 << 10);
    EXPECT_TRUE(segment);
    page_ = new (segment->bytes.data() + kOffset) JobPage{};
    place_ = {.segment = static_cast<uint32_t>(segment->id),
              .fd = segments_.Descriptor(segment->id),
              .offset = kOffset};
  }
  ~DirectFormsTest() override { std::filesystem::remove_all(directory_); }

  // Sends an unfilled form of a WRITE that refers to job `number`.
  std::unique_ptr<UnfilledForm> Send(uint32_t number) {
    const wire::UdpFlow flow{kOneHost, kOtherHost, wire::kRoceUdpPort, wire::kRoceUdpPort};
    transport::Train train;
    train.headers.operation = wire::Operation::kWriteOnly;
    train.headers.psn = number;
    train.mtu_bytes = 4096;
    train.packets = kPayload / 4096;
    train.begins = train.ends = true;
    train.headers.dma_length = kPayload;
    train.is_bytes = true;
    const std::vector<std::byte> payload(kPayload);
    train.bytes = payload;
    const auto room = first_.AllocateForm(flow, 0, transport::FormBytes(train), true);
    EXPECT_TRUE(room && !room->empty());
    transport::EmitFormHead(train, *room);
    std::unique_ptr<UnfilledForm> form = first_.CommitUnfilled(kPayload);
    CopyJob& job = page_->jobs[number % JobPage::kSlots];
    job.number = number;
    job.pid = job.mark_pid = kOwnHost;
    job.other_count = 1;
    job.other[0] = {reinterpret_cast<uint64_t>(form->payload().data()), kPayload};
    job.mark = static_cast<uint8_t>(form->filled_mark());
    job.mark_address = reinterpret_cast<uint64_t>(form->mark());
    job.Set(CopyJob::kAwaiting);
    JobReference reference = place_;
    reference.slot = number % JobPage::kSlots;
    reference.number = number;
    form->Refer(reference);
    first_.Flush();
    return form;
  }
  CopyJob& Job(uint32_t number) { return page_->jobs[number % JobPage::kSlots]; }
  // Lets the second host read. It names a place for forms, if `names`.
  void Receive(bool names = true) {
    second_.ReceiveShared(
        [&](const wire::UdpFlow&, WireForm form, std::span<const std::span<const std::byte>> all,
            const NetAddress&) { read_.insert(read_.end(), all.size(), form); },
        [&](const wire::UdpFlow& flow, std::span<const std::byte> form,
            const std::shared_ptr<DirectForm>& direct) {
          EXPECT_EQ(flow.source, kOneHost);
          EXPECT_EQ(flow.destination, kOtherHost);
          EXPECT_GT(transport::FormHeadBytes(form), 0u);
          if (direct == nullptr) return behind_;
          seen_.push_back(std::static_pointer_cast<transport::ForeignJob>(direct));
          return names && direct->Offer(kProgram, kPlace) ? Naming::kNamed : Naming::kNever;
        });
  }
  static void Mark(CopyJob& job) { *reinterpret_cast<uint8_t*>(job.mark_address) = job.mark; }

  static constexpr uint32_t kOffset = 5 * 4096 + 128;
  char directory_[32] = "/tmp/rdmaemu-direct-XXXXXX";
  UdpNetwork first_, second_;
  MemfdSegments segments_;
  JobPage* page_ = nullptr;
  JobReference place_;
  Naming behind_ = Naming::kLater;  // of forms behind one that has no place
  std::vector<WireForm> read_;
  std::vector<std::shared_ptr<transport::ForeignJob>> seen_;
};

TEST_F(DirectFormsTest, AJobGetsThePlaceThatTheReaderNames) {
  const auto form = Send(1);
  Receive();
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_EQ(Job(1).Now(), CopyJob::kOffered);
  EXPECT_EQ(Job(1).pid, kProgram);
  EXPECT_EQ(Job(1).mark_pid, kOwnHost);
  EXPECT_EQ(Job(1).other[0].address, kPlace.address);
  EXPECT_TRUE(second_.AwaitsPayload());
  EXPECT_FALSE(form->IsFilled());
  Mark(Job(1));
  EXPECT_TRUE(form->IsFilled());
  Receive();
  EXPECT_EQ(read_, std::vector{WireForm::kPlacedTrains});
  EXPECT_TRUE(seen_[0]->IsOver());
}

TEST_F(DirectFormsTest, OnlyLongPayloadsHaveReferences) {
  const wire::UdpFlow flow{kOneHost, kOtherHost, wire::kRoceUdpPort, wire::kRoceUdpPort};
  for (const size_t bytes : {kMinDirectBytes - 1, kMinDirectBytes}) {
    const auto room = first_.AllocateForm(flow, 0, transport::kMaxFormHeadBytes + bytes, true);
    ASSERT_TRUE(room && !room->empty());
    const auto form = first_.CommitUnfilled(bytes);
    EXPECT_EQ(form->takes_references(), bytes == kMinDirectBytes);
    form->Finish(false);
  }
}

TEST_F(DirectFormsTest, FormsBehindEachOtherAreNamedUpToALimit) {
  std::vector<std::unique_ptr<UnfilledForm>> forms;
  for (uint32_t i = 0; i < JobPage::kSlots; i++) forms.push_back(Send(i));
  place_.segment++;
  place_.offset += 2 * sizeof(JobPage);  // another program
  page_ = reinterpret_cast<JobPage*>(reinterpret_cast<std::byte*>(page_) + 2 * sizeof(JobPage));
  forms.push_back(Send(0));
  Receive();
  EXPECT_EQ(seen_.size(), OwnRings::kMaxAhead);
}

TEST_F(DirectFormsTest, NothingIsNamedBehindAFormThatIsNot) {
  const auto one = Send(1), two = Send(2);
  Receive(/*names=*/false);
  EXPECT_EQ(seen_.size(), 1u);
  EXPECT_EQ(Job(1).Now(), CopyJob::kOffered) << "to its own host";
  EXPECT_EQ(Job(1).pid, kOwnHost);
  EXPECT_EQ(Job(2).Now(), CopyJob::kAwaiting);
  Mark(Job(1));
  Receive();
  EXPECT_EQ(read_, std::vector{WireForm::kTrains});
  EXPECT_EQ(Job(2).pid, kProgram);
}

TEST_F(DirectFormsTest, NothingIsNamedBehindAFormThatItsHostHasTakenBack) {
  const auto one = Send(1);
  Receive();
  ASSERT_TRUE(Job(1).Claim(CopyJob::kFree));
  const auto two = Send(2);
  Receive();
  EXPECT_EQ(Job(2).Now(), CopyJob::kAwaiting);
  one->Finish(true);
  Receive();
  EXPECT_EQ(read_, std::vector{WireForm::kTrains});
  EXPECT_EQ(Job(2).pid, kProgram);
}

// Its payload would arrive before that of the earlier form.
TEST_F(DirectFormsTest, AFormThatNeverHasAPlaceAwaitsNobody) {
  behind_ = Naming::kNever;
  const auto one = Send(1), two = Send(2);
  Receive(/*names=*/false);
  EXPECT_EQ(seen_.size(), 1u);
  EXPECT_EQ(Job(2).Now(), CopyJob::kOffered);
  EXPECT_EQ(Job(2).pid, kOwnHost);
  EXPECT_FALSE(second_.HasUnreadInRings()) << "the host may sleep";
}

TEST_F(DirectFormsTest, AFormThatItsHostHasCopiedTakesLaterPlacesBack) {
  const auto one = Send(1), two = Send(2);
  Receive();
  ASSERT_EQ(seen_.size(), 2u);
  ASSERT_TRUE(Job(1).Claim(CopyJob::kFree));
  one->Finish(true);
  Receive();
  EXPECT_EQ(read_, std::vector{WireForm::kTrains});
  EXPECT_EQ(Job(2).pid, kOwnHost);
}

TEST_F(DirectFormsTest, AClosedPortHasNoPlaces) {
  const auto one = Send(1), two = Send(2);
  Receive();
  ASSERT_TRUE(Job(1).Claim(CopyJob::kTaken));
  second_.CloseAll();
  EXPECT_FALSE(seen_[0]->IsOver()) << "a thread copies";
  Job(1).Set(CopyJob::kDone);
  EXPECT_TRUE(seen_[0]->IsOver());
  EXPECT_TRUE(seen_[1]->IsOver());
  EXPECT_EQ(Job(2).pid, kOwnHost);
}

// A thread that has no room for a job puts it back.
TEST_F(DirectFormsTest, AJobThatWasPutBackIsNotWithdrawn) {
  const auto one = Send(1);
  Receive();
  ASSERT_TRUE(Job(1).Claim(CopyJob::kTaken));
  EXPECT_FALSE(seen_[0]->Withdraw());
  ASSERT_TRUE(Job(1).Claim(1, CopyJob::kTaken, CopyJob::kOffered));
  EXPECT_TRUE(seen_[0]->IsDirect());
  EXPECT_TRUE(seen_[0]->Withdraw());
  EXPECT_EQ(Job(1).pid, kOwnHost);
}

TEST_F(DirectFormsTest, ALostFormHasNoPlaceAnyMore) {
  const auto one = Send(1), two = Send(2);
  Receive();
  one->Finish(false);
  Mark(Job(2));
  Receive();
  EXPECT_EQ(read_, std::vector{WireForm::kPlacedTrains});
  EXPECT_TRUE(seen_[0]->IsOver());
  EXPECT_TRUE(seen_[1]->IsOver());
}

TEST_F(DirectFormsTest, AWithdrawnPlaceIsTheFormAgain) {
  const auto one = Send(1);
  const CopyRange own = Job(1).other[0];
  Receive();
  EXPECT_TRUE(seen_[0]->Withdraw());
  EXPECT_FALSE(seen_[0]->IsDirect());
  EXPECT_EQ(Job(1).Now(), CopyJob::kOffered);
  EXPECT_EQ(Job(1).pid, kOwnHost);
  EXPECT_EQ(Job(1).other[0].address, own.address);
  EXPECT_EQ(Job(1).mark, static_cast<uint8_t>(WireForm::kTrains));
}

TEST_F(DirectFormsTest, ATakenPlaceIsNotWithdrawn) {
  const auto one = Send(1);
  Receive();
  ASSERT_TRUE(Job(1).Claim(CopyJob::kTaken));
  EXPECT_FALSE(seen_[0]->Withdraw());
  EXPECT_TRUE(seen_[0]->IsDirect());
  Job(1).Set(CopyJob::kDone);
  EXPECT_TRUE(seen_[0]->Withdraw());
}

// The slot has a later job when the host that had the earlier one is slow.
TEST_F(DirectFormsTest, ALaterJobOfTheSlotIsNotChanged) {
  const auto one = Send(1);
  Receive();
  ASSERT_TRUE(Job(1).Claim(CopyJob::kTaken));
  Job(1).number = 1 + JobPage::kSlots;
  Job(1).Set(CopyJob::kOffered);
  EXPECT_TRUE(seen_[0]->Withdraw());
  EXPECT_EQ(Job(1).pid, kProgram) << "unchanged";
  EXPECT_FALSE(seen_[0]->Offer(kProgram, kPlace));
}

TEST_F(DirectFormsTest, AMarkWithoutAPlaceIsNoForm) {
  const auto one = Send(1);
  *one->mark() = std::byte{static_cast<uint8_t>(WireForm::kPlacedTrains)};
  Receive();
  EXPECT_TRUE(read_.empty());
  EXPECT_TRUE(seen_.empty());
}

TEST_F(DirectFormsTest, ThePageOfAnEndedProgramIsUnmapped) {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  const auto one = Send(1);
  Receive();
  const auto mapped = mappings();
  seen_.clear();
  Mark(Job(1));
  Receive();
  second_.PrepareRingsForSleep(true);
  EXPECT_EQ(mappings(), mapped) << "the program may send again";
  page_->is_ended = 1;
  second_.PrepareRingsForSleep(true);
  EXPECT_EQ(mappings(), mapped - 1);
}

TEST_F(DirectFormsTest, AWrongReferenceIsIgnored) {
  JobReference good = place_;
  for (JobReference wrong : {JobReference{good.segment + 1, -1, good.offset},
                             JobReference{good.segment + 2, 0, good.offset},
                             JobReference{good.segment + 3, good.fd, good.offset + 1},
                             JobReference{good.segment + 4, good.fd, 64 << 10}}) {
    place_ = wrong;
    const auto one = Send(1);
    Receive();
    EXPECT_TRUE(seen_.empty());
    one->Finish(true);
    Receive();
  }
  EXPECT_EQ(read_.size(), 4u) << "the forms themselves arrive";
  place_ = good;
  const auto one = Send(1);
  place_.slot = JobPage::kSlots;
  one->Refer({good.segment, good.fd, good.offset, JobPage::kSlots, 1});
  Receive();
  EXPECT_TRUE(seen_.empty());
}

// ---- offers of permits (transport/permit_offer.h)

class PermitOffersTest : public DirectFormsTest {
 protected:
  PermitOffersTest() {
    place_.slot = 3;
    // A host stages the first datagrams of a new ring. It drops offers among them.
    EXPECT_TRUE(SendOffer(place_));
    EXPECT_EQ(ReceiveOffer(), nullptr);
  }
  bool SendOffer(const JobReference& page) {
    const wire::UdpFlow flow{kOneHost, kOtherHost, wire::kRoceUdpPort, wire::kRoceUdpPort};
    transport::PermitOffer offer{};
    offer.number = 7;
    offer.page = page;
    const bool is_sent = first_.SendOffer(flow, offer.bytes());
    first_.Flush();
    return is_sent;
  }
  // Returns the page of the offer that the second host receives.
  std::shared_ptr<JobPage> ReceiveOffer() {
    std::shared_ptr<JobPage> page;
    second_.ReceiveShared([&](const wire::UdpFlow& flow, WireForm form,
                              std::span<const std::span<const std::byte>> all, const NetAddress&) {
      ASSERT_EQ(form, WireForm::kPermitOffers);
      ASSERT_EQ(all.size(), 1u);
      EXPECT_EQ(flow.source, kOneHost);
      const auto offer = transport::PermitOffer::Parse(all[0]);
      ASSERT_TRUE(offer);
      EXPECT_EQ(offer->number, 7u);
      page = second_.OpenJobPage(offer->page);
    });
    return page;
  }
};

TEST_F(PermitOffersTest, AnOfferArrivesWithThePageOfItsProgram) {
  ASSERT_TRUE(SendOffer(place_));
  const std::shared_ptr<JobPage> page = ReceiveOffer();
  ASSERT_NE(page, nullptr);
  Permit permit{};
  permit.number = 9;
  page->lent[3].permit.Publish(permit);
  EXPECT_EQ(page_->lent[3].permit.Number(), 9u);
}

TEST_F(PermitOffersTest, AFalseReferenceOpensNoPage) {
  JobReference wrong = place_;
  wrong.offset = 1 << 30;
  ASSERT_TRUE(SendOffer(wrong));
  EXPECT_EQ(ReceiveOffer(), nullptr);
  wrong = place_;
  wrong.segment++;
  wrong.fd = 0;
  ASSERT_TRUE(SendOffer(wrong));
  EXPECT_EQ(ReceiveOffer(), nullptr);
}

TEST_F(PermitOffersTest, APageIsOpenedOnlyWhileItsOfferIsReceived) {
  EXPECT_EQ(second_.OpenJobPage(place_), nullptr);
  ASSERT_TRUE(SendOffer(place_));
  EXPECT_NE(ReceiveOffer(), nullptr);
  EXPECT_EQ(second_.OpenJobPage(place_), nullptr);
}

TEST_F(PermitOffersTest, AnOfferNeedsSharedMemory) {
  UdpNetwork alone;
  const wire::UdpFlow flow{kOneHost, kOtherHost, wire::kRoceUdpPort, wire::kRoceUdpPort};
  EXPECT_FALSE(alone.SendOffer(flow, transport::PermitOffer{}.bytes()));
  EXPECT_EQ(alone.OpenJobPage(place_), nullptr);
}

#endif

}  // namespace
}  // namespace rdmaemu::runtime
