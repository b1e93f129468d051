#include "tools/cli/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace rdmaemu::cli {
namespace {

std::map<std::string, std::string> SystemVariables() {
  const auto environment = SystemEnvironment({});
  EXPECT_TRUE(environment);
  if (!environment) return {};
  return {environment->begin(), environment->end()};
}

TEST(SystemEnvironment, LoadsTheMachinesLibrariesBeforeThoseOfTheProgram) {
  setenv("LD_PRELOAD", "other.so", 1);
  const std::string preloaded = SystemVariables()["LD_PRELOAD"];
  unsetenv("LD_PRELOAD");
  const size_t verbs = preloaded.find("/libibverbs.so.1:");
  const size_t rdmacm = preloaded.find("/librdmacm.so.1:");
  EXPECT_NE(verbs, std::string::npos) << preloaded;
  EXPECT_NE(rdmacm, std::string::npos) << preloaded;
  EXPECT_LT(verbs, rdmacm);
  EXPECT_EQ(preloaded.front(), '/');
  EXPECT_EQ(preloaded.substr(preloaded.rfind(':')), ":other.so");
}

TEST(SystemEnvironment, TellsTestsTheirBackendUnlessItIsGiven) {
  unsetenv("RDMAEMU_BACKEND");
  EXPECT_EQ(SystemVariables()["RDMAEMU_BACKEND"], "system");
  setenv("RDMAEMU_BACKEND", "embedded", 1);
  EXPECT_EQ(SystemVariables().count("RDMAEMU_BACKEND"), 0u);
  unsetenv("RDMAEMU_BACKEND");
}

}  // namespace
}  // namespace rdmaemu::cli
