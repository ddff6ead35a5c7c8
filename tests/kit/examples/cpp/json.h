// As much JSON as the protocol needs: values, reading, writing. What is read must be sound; what is not ends
// the process with a message, which the kit shows.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

struct Json {
  enum Kind { Null, Bool, Int, Real, Text, List, Object } kind = Null;
  bool flag = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> fields;  // in the order of the text

  Json() = default;
  Json(bool value) : kind(Bool), flag(value) {}
  Json(int64_t value) : kind(Int), integer(value) {}
  Json(int value) : kind(Int), integer(value) {}
  Json(const char* value) : kind(Text), text(value) {}
  Json(std::string value) : kind(Text), text(std::move(value)) {}
  Json(std::vector<Json> values) : kind(List), items(std::move(values)) {}

  static Json object() { Json made; made.kind = Object; return made; }
  static Json list() { Json made; made.kind = List; return made; }

  Json& set(const std::string& key, Json value) {
    fields.emplace_back(key, std::move(value));
    return *this;
  }
  const Json* find(const std::string& key) const {
    for (const auto& field : fields) if (field.first == key) return &field.second;
    return nullptr;
  }
  const Json& at(const std::string& key) const {
    const Json* found = find(key);
    if (found == nullptr) { std::cerr << "no field " << key << "\n"; std::exit(2); }
    return *found;
  }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  Json read() { Json value = value_here(); skip(); if (at_ != text_.size()) fail("more than one value"); return value; }

 private:
  const std::string& text_;
  size_t at_ = 0;

  [[noreturn]] void fail(const char* why) const { std::cerr << "bad JSON at " << at_ << ": " << why << "\n"; std::exit(2); }
  void skip() { while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_; }
  char peek() { skip(); if (at_ == text_.size()) fail("it ends early"); return text_[at_]; }
  bool take(char wanted) { if (peek() != wanted) return false; ++at_; return true; }
  void expect(char wanted) { if (!take(wanted)) fail("another character is expected"); }
  bool word(const char* wanted) {
    std::string word(wanted);
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  Json value_here() {
    char first = peek();
    if (first == '{') return object_here();
    if (first == '[') return list_here();
    if (first == '"') return Json(text_here());
    if (word("null")) return Json();
    if (word("true")) return Json(true);
    if (word("false")) return Json(false);
    return number_here();
  }

  Json object_here() {
    Json made = Json::object();
    expect('{');
    if (take('}')) return made;
    do {
      peek();
      std::string key = text_here();
      expect(':');
      made.set(key, value_here());
    } while (take(','));
    expect('}');
    return made;
  }

  Json list_here() {
    Json made = Json::list();
    expect('[');
    if (take(']')) return made;
    do made.items.push_back(value_here()); while (take(','));
    expect(']');
    return made;
  }

  Json number_here() {
    size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
    std::string digits = text_.substr(at_, end - at_);
    if (digits.empty()) fail("no value");
    at_ += digits.size();
    if (digits.find_first_of(".eE") == std::string::npos) return Json(int64_t(std::stoll(digits)));
    Json made;
    made.kind = Json::Real;
    made.real = std::stod(digits);
    return made;
  }

  std::string text_here() {
    std::string made;
    expect('"');
    while (at_ < text_.size() && text_[at_] != '"') {
      char next = text_[at_++];
      if (next != '\\') { made += next; continue; }
      if (at_ == text_.size()) fail("it ends early");
      next = text_[at_++];
      switch (next) {
        case 'n': made += '\n'; break;
        case 't': made += '\t'; break;
        case 'r': made += '\r'; break;
        case 'b': made += '\b'; break;
        case 'f': made += '\f'; break;
        case 'u': fail("an escape that this example does not read");
        default: made += next;
      }
    }
    expect('"');
    return made;
  }
};

inline void write(std::ostream& out, const Json& value) {
  const char* between = "";
  switch (value.kind) {
    case Json::Null: out << "null"; break;
    case Json::Bool: out << (value.flag ? "true" : "false"); break;
    case Json::Int: out << value.integer; break;
    case Json::Real: out << value.real; break;
    case Json::Text:
      out << '"';
      for (char letter : value.text) { if (letter == '"' || letter == '\\') out << '\\'; out << letter; }
      out << '"';
      break;
    case Json::List:
      out << '[';
      for (const Json& item : value.items) { out << between; write(out, item); between = ","; }
      out << ']';
      break;
    case Json::Object:
      out << '{';
      for (const auto& field : value.fields) {
        out << between << '"' << field.first << "\":";
        write(out, field.second);
        between = ",";
      }
      out << '}';
  }
}
