#include "texts/json_row.h"

#include "core/error.h"
#include "core/utf8.h"
#include "io/json.h"

namespace qkscope {
namespace {

// Listens to the parser and keeps only the wanted members of the outermost object: a row may hold
// much more than its text.
class RowListener : public nlohmann::json_sax<Json> {
 public:
  RowListener(const RecordColumns& columns, Record& record) : columns_(columns), record_(record) {}

  bool has_text = false, has_id = false, id_is_nested = false;

  bool null() override {
    return value([](ExampleId& id) { id = ExampleId::from_text("None"); });
  }
  bool boolean(bool v) override {
    return value([=](ExampleId& id) { id = ExampleId::from(std::int64_t{v}); }, "a boolean");
  }
  bool number_integer(number_integer_t v) override {
    return value([=](ExampleId& id) { id = ExampleId::from(std::int64_t{v}); }, "a number");
  }
  bool number_unsigned(number_unsigned_t v) override {
    return value([=](ExampleId& id) { id = ExampleId::from(std::uint64_t{v}); }, "a number");
  }
  bool number_float(number_float_t v, const string_t& written) override {
    const bool digits = written.find_first_of(".eE") == std::string::npos;
    return value(
        [&](ExampleId& id) { id = digits ? ExampleId::from_digits(written) : ExampleId::from(v); },
        "a number");
  }
  bool string(string_t& v) override {
    if (depth_ == 1 && in_text_) record_.text = v;
    return value([&](ExampleId& id) { id = ExampleId::from_text(v); }, nullptr);
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open("an object"); }
  bool start_array(std::size_t) override { return open("a list"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    in_text_ = name == columns_.text;
    in_id_ = columns_.id && name == *columns_.id;
    has_text = has_text || in_text_;
    has_id = has_id || in_id_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    std::string reason = error.what();
    if (const auto cut = reason.find(": "); cut != std::string::npos) reason.erase(0, cut + 2);
    bad_input("{}: not valid JSON: {}", record_.where, reason);
  }

 private:
  template <typename SetId>
  bool value(SetId set_id, const char* not_text = nullptr) {
    if (depth_ == 0) bad_input("{}: expected a JSON object", record_.where);
    if (depth_ != 1) return true;
    if (in_text_ && not_text != nullptr) wrong_text(not_text);
    if (in_id_) set_id(record_.id);
    return true;
  }
  bool open(const char* kind) {
    if (depth_ == 0 && std::string_view(kind) != "an object") {
      bad_input("{}: expected a JSON object, found {}", record_.where, kind);
    }
    if (depth_ == 1 && in_text_) wrong_text(kind);
    if (depth_ == 1 && in_id_) id_is_nested = true;
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  [[noreturn]] void wrong_text(const char* found) const {
    bad_input("{}: column '{}' holds {}, expected a string", record_.where, columns_.text, found);
  }

  const RecordColumns& columns_;
  Record& record_;
  int depth_ = 0;
  bool in_text_ = false, in_id_ = false;
};

const char* type_name(const Json& value) {
  return value.is_number_integer() ? "int64"
         : value.is_number_float() ? "double"
                                   : value.type_name();
}

}  // namespace

void parse_json_row(std::string_view text, const RecordColumns& columns, Record& record) {
  record.text.reset();
  std::string replaced;
  if (columns.replace_invalid && utf8::find_invalid(text) != std::string_view::npos) {
    replaced = utf8::replace_invalid(text);
    text = replaced;
  }
  RowListener listener(columns, record);
  Json::sax_parse(text, &listener);
  if (!listener.has_text) {
    missing_column(record.where, columns.text, json_row_columns(text, record.where));
  }
  if (columns.id && !listener.has_id) {
    missing_column(record.where, *columns.id, json_row_columns(text, record.where));
  }
  if (listener.id_is_nested) {
    record.id = ExampleId::from_text(parse_json(text, record.where)[*columns.id].dump());
  }
}

std::vector<CorpusColumn> json_row_columns(std::string_view text, const std::string& where) {
  std::vector<CorpusColumn> columns;
  const Json row = parse_json(text, where);
  if (!row.is_object()) bad_input("{}: expected a JSON object", where);
  for (const auto& [name, value] : row.items()) columns.push_back({name, type_name(value)});
  return columns;
}

}  // namespace qkscope
