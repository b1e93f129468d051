#include "emulator/transport/send_window.h"

#include <gtest/gtest.h>

namespace rdmaemu::transport {
namespace {

SendWindow Begun(uint32_t start) {
  SendWindow window;
  window.Reset(start);
  return window;
}

void FillAndAcknowledge(SendWindow& window, uint32_t count) {
  window.NoteFull();
  window.Acknowledged(count);
}

TEST(SendWindow, DoublesEachWindowUntilItsLimit) {
  SendWindow window = Begun(128);
  EXPECT_EQ(window.packets(), 128u);
  for (int i = 0; i < 2; i++) FillAndAcknowledge(window, 64);
  EXPECT_EQ(window.packets(), 256u);
  for (int i = 0; i < 100; i++) FillAndAcknowledge(window, 64);
  EXPECT_EQ(window.packets(), SendWindow::kMost);
}

TEST(SendWindow, StaysWhileTheSenderDoesNotFillIt) {
  SendWindow window = Begun(128);
  for (int i = 0; i < 100; i++) window.Acknowledged(64);
  EXPECT_EQ(window.packets(), 128u);
}

TEST(SendWindow, HalvesAtALossAndGrowsSlowlyFromThere) {
  SendWindow window = Begun(256);
  window.Lost();
  EXPECT_EQ(window.packets(), 128u);
  for (int i = 0; i < 4; i++) FillAndAcknowledge(window, 32);
  EXPECT_EQ(window.packets(), 128u + SendWindow::kStep);
  for (int i = 0; i < 100; i++) window.Lost();
  EXPECT_EQ(window.packets(), SendWindow::kLeast);
}

// A profile may exceed the limit. The window then starts there and does not grow.
TEST(SendWindow, NeverGrowsBeyondALargerStart) {
  SendWindow window = Begun(4096);
  for (int i = 0; i < 100; i++) FillAndAcknowledge(window, 4096);
  EXPECT_EQ(window.packets(), 4096u);
}

}  // namespace
}  // namespace rdmaemu::transport
