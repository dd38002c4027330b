#include "copus/args/option_table.h"

#include "copus/base/text.h"

namespace copus {
namespace {

std::string in_lines(std::string_view text, std::size_t width) {
  std::string lines;
  std::size_t column = 0;
  for (const std::string_view word : split(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > width) {
      lines += '\n';
      column = 0;
    } else if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

// Returns the text as a Markdown cell: flags become code, and bars are escaped, because a bar would
// end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const std::string_view word : split(text, ' ')) {
    if (!out.empty()) out += ' ';
    const std::size_t begin = word.find("--");
    const std::size_t end = word.find_last_not_of(".,:;)");
    if (begin > 1 || begin + 2 >= word.size()) {
      out += word;
    } else {
      out += fmt::format("{}`{}`{}", word.substr(0, begin), word.substr(begin, end + 1 - begin),
                         word.substr(end + 1));
    }
  }
  std::string escaped;
  for (const char c : out) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string choices_text(const ValueForm& form) {
  std::string text;
  for (const std::string& each : form.choices) {
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", each);
  }
  return text;
}

}  // namespace

std::string value_text(const AnyOption& option) {
  if (option.is_positional()) return "";
  const ValueForm& form = option.form();
  std::string text = form.placeholder;
  if (!form.bare.empty()) text = fmt::format("[{}]", text);
  if (form.is_list) text += form.separator == 0 ? " ..." : fmt::format("{}...", form.separator);
  return text;
}

std::string help_text(const AnyOption& option, std::size_t width) {
  std::string text = option.help();
  if (!option.form().range.empty()) text += fmt::format(" ({})", option.form().range);
  if (const std::string usual = option.default_text(); !usual.empty()) {
    text += fmt::format(" [{}]", usual);
  }
  return in_lines(text, width);
}

std::string markdown_table(const OptionGroup& args, std::string_view title) {
  std::string table = "| option | values | default | what it is for |\n| --- | --- | --- | --- |\n";
  for (const AnyOption* option : args.options()) {
    if (option->title() != title) continue;
    const ValueForm& form = option->form();
    const std::string value = form.choices.empty() ? value_text(*option) : std::string();
    table += fmt::format(
        "| `{}{}` | {} | {} | {} |\n", option->flag(), value.empty() ? "" : " " + cell(value),
        form.choices.empty() ? cell(form.range) : choices_text(form),
        option->required() ? "required" : cell(option->default_text()), cell(option->help()));
  }
  return table;
}

}  // namespace copus
