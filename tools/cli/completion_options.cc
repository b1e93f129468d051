#include "tools/cli/completion_options.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

namespace rdmaemu::cli {
namespace {

// Returns the subcommands that users see.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!each->get_group().empty()) commands.push_back(each);
  }
  return commands;
}

// Returns the options of a command as they are written: "--host", "-o".
std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// Returns the part of a help text before its first semicolon or new line.
std::string FirstPart(const std::string& text) { return text.substr(0, text.find_first_of(";\n")); }

// Returns a text in fish's single quotes.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

// Appends a `case` branch for the command and its subcommands. `path` is "trace show".
void AppendBash(const CLI::App& app, const std::string& path, std::string& out) {
  std::string words;
  for (const CLI::App* each : CommandsOf(app)) words += each->get_name() + " ";
  for (const std::string& name : OptionsOf(app)) words += name + " ";
  if (!words.empty()) words.pop_back();
  out += "    '" + path + "') words='" + words + "' ;;\n";
  for (const CLI::App* each : CommandsOf(app)) {
    AppendBash(*each, path + (path.empty() ? "" : " ") + each->get_name(), out);
  }
}

std::string BashScript(const CLI::App& app) {
  std::string out =
      "# Completion of rdmaemu for bash, made by `rdmaemu completion bash`.\n"
      "_rdmaemu_words() {\n"
      "  case \"$1\" in\n";
  AppendBash(app, "", out);
  return out +
         "    *) return 1 ;;\n"
         "  esac\n"
         "}\n"
         "_rdmaemu() {\n"
         "  local words path='' next i current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    # Everything behind -- belongs to the program.\n"
         "    [[ \"${COMP_WORDS[i]}\" == -- ]] && return\n"
         "    next=\"${path:+$path }${COMP_WORDS[i]}\"\n"
         "    _rdmaemu_words \"$next\" && path=\"$next\"\n"
         "  done\n"
         "  _rdmaemu_words \"$path\"\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o bashdefault -o default -F _rdmaemu rdmaemu\n";
}

void AppendFish(const CLI::App& app, const std::string& condition, std::string& out) {
  const std::string start = "complete -c rdmaemu -n " + Quoted(condition);
  std::string below;
  for (const CLI::App* each : CommandsOf(app)) below += " " + each->get_name();
  for (const CLI::App* each : CommandsOf(app)) {
    const std::string here = "not __fish_seen_subcommand_from" + below;
    out += "complete -c rdmaemu -n " +
           Quoted(condition == "true" ? here : condition + "; and " + here) + " -a " +
           each->get_name() + " -d " + Quoted(FirstPart(each->get_description())) + "\n";
    const std::string inside = "__fish_seen_subcommand_from " + each->get_name();
    AppendFish(*each, condition == "true" ? inside : condition + "; and " + inside, out);
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const std::string rest = (option->get_expected_min() > 0 ? " -r" : "") +
                             (" -d " + Quoted(FirstPart(option->get_description())));
    for (const std::string& name : option->get_lnames()) {
      out.append(start).append(" -l ").append(name).append(rest).append("\n");
    }
    for (const std::string& name : option->get_snames()) {
      out.append(start).append(" -s ").append(name).append(rest).append("\n");
    }
  }
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") {
    std::string out = "# Completion of rdmaemu for fish, made by `rdmaemu completion fish`.\n";
    AppendFish(app, "true", out);
    return out;
  }
  if (shell == "zsh") {
    return "#compdef rdmaemu\nautoload -U +X compinit && compinit\n"
           "autoload -U +X bashcompinit && bashcompinit\n" +
           BashScript(app);
  }
  return BashScript(app);
}

void AddReportOptions(CLI::App& run, ReportRequest& report) {
  CLI::Option* const directory =
      run.add_option("--report", report.directory,
                     "When the run fails, leave its traces, capture, log, rules and a page that"
                     " shows them in DIR/HOST (docs/command.md)");
  directory->type_name("DIR");
  run.add_flag("--report-always", report.is_always, "Leave the report after a success, too")
      ->needs(directory);
}

CompletionOptions::CompletionOptions(CLI::App& app)
    : app_(&app),
      completion_(app.add_subcommand("completion", "Print a completion script for a shell")),
      doctor_(app.add_subcommand("doctor", "Check what this machine allows, and what it costs")) {
  completion_->add_option("SHELL", shell_, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion_->footer(
      "Example:\n"
      "  source <(rdmaemu completion bash)\n"
      "  rdmaemu completion fish > ~/.config/fish/completions/rdmaemu.fish");
  doctor_->add_flag("--json", json_, "For a program");
  doctor_->footer(
      "Exits with 0 when all that is required works, else 1.\n\n"
      "Example:\n  rdmaemu doctor");
}

int CompletionOptions::Do() const {
  if (doctor_->parsed()) return Doctor(json_);
  fputs(CompletionScript(*app_, shell_).c_str(), stdout);
  return 0;
}

InstallCommand::InstallCommand(CLI::App& app)
    : install_(app.add_subcommand(
          "install", "Copy the command, its libraries, man pages and scenarios below a prefix")) {
  install_
      ->add_option("--prefix", prefix_, "The prefix, such as /usr/local or a directory of your own")
      ->type_name("DIR")
      ->required();
  install_->footer("Example:\n  rdmaemu install --prefix ~/.local");
}

}  // namespace rdmaemu::cli
