// rdmaemu/fixture.hpp without a test framework. Failures and skips are exceptions, and the timeline
// is written to stderr. The exit status is 0 when all checks pass.
#include <rdmaemu/fault_points.hpp>
#include <rdmaemu/fixture.hpp>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/embedded/resolver.h"
#include "tests/embedded/self.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::testing::FaultReport;
using rdmaemu::testing::Fixture;
using rdmaemu::testing::ForEachFault;
using rdmaemu::testing::NextEvent;
using rdmaemu::testing::TestFailed;
using rdmaemu::testing::TestSkipped;

int g_failures = 0;

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("not so: %s\n", what);
  g_failures++;
}

class Plain : private Fixture {
 public:
  // Throws an exception.
  void WaitForSecondEvent() {
    const Resolver client(Address());
    NextEvent(client.channel);
    NextEvent(client.channel);
  }
  void ReportFaults() {
    const FaultReport report = ForEachFault({{"no event", ""}}, [this] { WaitForSecondEvent(); });
    Expect(report.ToString().find("nothing is due") != std::string::npos, "a failure is reported");
  }
};

template <class Exception, class Body>
bool Throws(Body&& body) {
  try {
    body();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

int Main() {
  Expect(Throws<TestFailed>([] { Plain().WaitForSecondEvent(); }), "a failure is an exception");
  Expect(Throws<TestSkipped>([] { rdmaemu::testing::Skip("why"); }), "a skip is an exception");
  Plain().ReportFaults();
  const Ran ran = RunSelf("fail");
  Expect(ran.status != 0, "a failure ends the program");
  Expect(ran.shown.find("what the host did") != std::string::npos, "the timeline is shown");
  return g_failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rdmaemu_test

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "fail") == 0) {
    try {
      rdmaemu_test::Plain().WaitForSecondEvent();
    } catch (const rdmaemu::testing::TestFailed&) {
      return 1;
    }
  }
  return rdmaemu_test::Main();
}
