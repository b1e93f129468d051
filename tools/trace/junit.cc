#include "tools/trace/junit.h"

namespace rdmaemu::trace_tools {

std::string Xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c == '\n' || (c >= ' ' && c <= '~') ? c : '?';
    }
  }
  return out;
}

std::string JunitCase(const std::string& class_name, const std::string& name, const char* verdict,
                      const std::string& text) {
  std::string out = "<testcase classname=\"" + Xml(class_name) + "\" name=\"" + Xml(name) + "\"";
  if (text.empty()) return out + "/>\n";
  return out + "><" + verdict + " message=\"" + Xml(text.substr(0, text.find('\n'))) + "\">" +
         Xml(text) + "</" + verdict + "></testcase>\n";
}

std::string JunitReport(const std::string& name, size_t tests, size_t failures, size_t skipped,
                        const std::string& cases) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"" +
         Xml(name) + "\" tests=\"" + std::to_string(tests) + "\" failures=\"" +
         std::to_string(failures) + "\" skipped=\"" + std::to_string(skipped) + "\">\n" + cases +
         "</testsuite>\n</testsuites>\n";
}

}  // namespace rdmaemu::trace_tools
