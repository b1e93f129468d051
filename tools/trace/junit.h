// Writes results as JUnit's XML, which CI systems read.
#pragma once

#include <cstddef>
#include <string>

namespace rdmaemu::trace_tools {

// Escapes text for XML and HTML. '?' replaces control characters, which XML 1.0 forbids, and bytes
// beyond ASCII, which may not be UTF-8.
std::string Xml(const std::string& text);

// Returns a test case. `verdict` is "failure" or "skipped". An empty `text` means success. The
// first line of `text` is the message.
std::string JunitCase(const std::string& class_name, const std::string& name, const char* verdict,
                      const std::string& text);
// Returns the whole document around the texts of its cases.
std::string JunitReport(const std::string& name, size_t tests, size_t failures, size_t skipped,
                        const std::string& cases);

}  // namespace rdmaemu::trace_tools
