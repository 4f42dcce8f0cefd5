#include "input/checkpoint/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include <gmock/gmock.h>

#include "base/io/output_file.h"
#include "error_message.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";
constexpr const char* kOther = "0123456fffffffffffffffffffffffffffffffff";

// Clears the environment variables of the cache and restores them afterwards.
class HubCache : public testing::Test {
 public:
  HubCache() {
    for (const char* name :
         {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = ::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      ::unsetenv(name);
    }
  }
  ~HubCache() override {
    for (const auto& [name, value] : before_)
      if (value)
        set(name.c_str(), *value);
      else
        ::unsetenv(name.c_str());
  }

 protected:
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  // Cached model "org/name" whose main branch is kCommit; HF_HUB_CACHE points to the cache.
  void make_model() {
    set("HF_HUB_CACHE", folder_.path());
    std::filesystem::create_directories(snapshot(kCommit));
    std::filesystem::create_directories(model() + "/refs/refs/pr");
    write_file(model() + "/refs/main", kCommit);
  }

  std::string model() const { return folder_.file("models--org--name"); }
  std::string snapshot(const std::string& commit) const { return model() + "/snapshots/" + commit; }

  static std::string refusal(const std::string& id, const std::string& revision = "") {
    return bad_input_message([&] { resolve_checkpoint_path(id, revision); });
  }

  TemporaryFolder folder_;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(HubCache, CacheFolderFollowsTheEnvironment) {
  EXPECT_THAT(bad_input_message([] { hub_cache_folder(); }), HasSubstr("set HF_HUB_CACHE"));
  set("HOME", "/home/someone");
  EXPECT_EQ(hub_cache_folder(), "/home/someone/.cache/huggingface/hub");
  set("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(hub_cache_folder(), "/cache/huggingface/hub");
  set("HF_HOME", "~/models");
  EXPECT_EQ(hub_cache_folder(), "/home/someone/models/hub");
  set("HF_HOME", "");  // an empty variable counts as unset
  EXPECT_EQ(hub_cache_folder(), "/cache/huggingface/hub");
  set("HF_HOME", "/hf");
  EXPECT_EQ(hub_cache_folder(), "/hf/hub");
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(hub_cache_folder(), "/old");
  set("HF_HUB_CACHE", "/hub");
  EXPECT_EQ(hub_cache_folder(), "/hub");
}

TEST_F(HubCache, LocalFoldersTakePrecedence) {
  EXPECT_EQ(resolve_checkpoint_path(folder_.path(), ""), folder_.path());
  EXPECT_EQ(resolve_checkpoint_path(folder_.path(), "main"), folder_.path());
  write_file(folder_.file("file"), "");
  EXPECT_THAT(refusal(folder_.file("file")), HasSubstr("is a file; expected a checkpoint folder"));
  EXPECT_THAT(refusal(folder_.file("absent")), HasSubstr("no such folder, and not a model id"));
}

TEST_F(HubCache, RevisionsAreFoundByBranchTagAndCommitPrefix) {
  make_model();
  write_file(model() + "/refs/refs/pr/3", std::string(kCommit) + "\n");
  EXPECT_EQ(resolve_checkpoint_path("org/name", ""), snapshot(kCommit));
  EXPECT_EQ(resolve_checkpoint_path("org/name", "main"), snapshot(kCommit));
  EXPECT_EQ(resolve_checkpoint_path("org/name", "refs/pr/3"), snapshot(kCommit));
  EXPECT_EQ(resolve_checkpoint_path("org/name", kCommit), snapshot(kCommit));
  EXPECT_EQ(resolve_checkpoint_path("org/name", "0123456"), snapshot(kCommit));
  EXPECT_THAT(refusal("org/name", "012345"), HasSubstr("revision \"012345\" is not in the cache"));
  std::filesystem::create_directories(snapshot(kOther));
  EXPECT_EQ(resolve_checkpoint_path("org/name", "0123456f"), snapshot(kOther));
  EXPECT_THAT(refusal("org/name", "0123456"),
              AllOf(HasSubstr("several commits"), HasSubstr(kCommit), HasSubstr(kOther)));
}

TEST_F(HubCache, AModelIdWithoutOrganisationIsFound) {
  set("HF_HOME", folder_.path());
  const auto gpt2 = folder_.file("hub/models--gpt2");
  std::filesystem::create_directories(gpt2 + "/snapshots/abc");
  std::filesystem::create_directories(gpt2 + "/refs");
  write_file(gpt2 + "/refs/main", "abc");
  EXPECT_EQ(resolve_checkpoint_path("gpt2", ""), gpt2 + "/snapshots/abc");
}

TEST_F(HubCache, AMissingModelErrorSaysHowToDownload) {
  make_model();
  EXPECT_THAT(
      refusal("org/nmae"),
      AllOf(HasSubstr("looked for " + folder_.file("models--org--nmae")),
            HasSubstr("(the cache holds org/name)"), HasSubstr("'qkscope hub download org/nmae'")));
  EXPECT_THAT(refusal("org/other", "v1"),
              HasSubstr("'qkscope hub download org/other --revision v1'"));
}

TEST_F(HubCache, AMissingRevisionListsCachedRevisions) {
  make_model();
  std::filesystem::create_directory_symlink(model() + "/refs", model() + "/refs/circle");
  EXPECT_THAT(refusal("org/name", "v2"),
              AllOf(HasSubstr("revision \"v2\" is not in the cache"),
                    HasSubstr(model() + "/refs/v2 and " + snapshot("v2")),
                    HasSubstr(std::string("revisions there: main, ") + kCommit),
                    HasSubstr("'qkscope hub download org/name --revision v2'")));
}

TEST_F(HubCache, ABranchWithoutSnapshotIsReported) {
  make_model();
  write_file(model() + "/refs/v1", kOther);
  EXPECT_THAT(refusal("org/name", "v1"), AllOf(HasSubstr(std::string("\"v1\" is commit ") + kOther),
                                               HasSubstr("looked for " + snapshot(kOther))));
  write_file(model() + "/refs/v1", "../../../etc");
  EXPECT_THAT(refusal("org/name", "v1"), HasSubstr("found \"../../../etc\", expected a commit"));
}

TEST_F(HubCache, InvalidIdsAndRefsCannotEscapeTheCache) {
  make_model();
  for (const std::string id : {"", "../name", "org/..", "/org/name", "a/b/c", "org/", "/name",
                               ".org/name", "org/na--me", "org/na me", "org\\name", "~/x"})
    EXPECT_THAT(refusal(id), HasSubstr("no such folder, and not a model id")) << id;
  EXPECT_THAT(refusal(std::string(97, 'x')), HasSubstr("not a model id"));
  EXPECT_THAT(refusal(std::string(100000, 'x')), HasSubstr("not a model id"));
  for (const std::string revision : {"..", "../main", "/main", "a//b", "./main", "a/../main"})
    EXPECT_THAT(refusal("org/name", revision), HasSubstr("is not a revision")) << revision;
}

TEST_F(HubCache, DatasetsAreFoundByIdOrPath) {
  set("HF_HUB_CACHE", folder_.path());
  EXPECT_EQ(resolve_dataset_path(folder_.path()), folder_.path());
  EXPECT_EQ(resolve_dataset_path("no such/dataset id"), "no such/dataset id");
  EXPECT_THAT(bad_input_message([] { resolve_dataset_path("org/texts"); }),
              AllOf(HasSubstr("looked for " + folder_.file("datasets--org--texts")),
                    HasSubstr("'qkscope hub download org/texts --dataset'")));
  const auto dataset = folder_.file("datasets--org--texts");
  std::filesystem::create_directories(dataset + "/snapshots");
  EXPECT_THAT(bad_input_message([] { resolve_dataset_path("org/texts"); }),
              HasSubstr("revisions there: none"));
  std::filesystem::create_directories(dataset + "/snapshots/abc");
  std::filesystem::create_directories(dataset + "/refs");
  write_file(dataset + "/refs/main", "abc");
  EXPECT_EQ(resolve_dataset_path("org/texts"), dataset + "/snapshots/abc");
}

TEST_F(HubCache, CommitsAreResolvedFromTheCacheAlone) {
  make_model();
  const auto commit = [](const std::string& revision) {
    return cached_commit(RepositoryKind::model, "org/name", revision);
  };
  EXPECT_EQ(commit("main"), kCommit);
  EXPECT_EQ(commit("01234567"), kCommit);
  EXPECT_EQ(commit("v1"), "");
  write_file(model() + "/refs/main", "not a commit");
  EXPECT_EQ(commit("main"), "");
  write_file(model() + "/refs/main", std::string(40, 'x'));
  EXPECT_EQ(commit("main"), "");
}

TEST_F(HubCache, RefFilesHoldOneCommit) {
  make_model();
  for (const std::string& content : {std::string(), std::string("a/b"), std::string(".git"),
                                     std::string("a\\b"), std::string("a\0b", 3)}) {
    write_file(model() + "/refs/main", content);
    EXPECT_THAT(refusal("org/name"), HasSubstr("expected a commit; remove the file and run"))
        << content;
  }
}

TEST_F(HubCache, FolderNamesOfTheCacheAreParsed) {
  const auto parsed = [](const std::string& name) {
    const auto found = parse_cache_folder_name(name);
    if (!found) return std::string("none");
    return (found->kind == RepositoryKind::model ? "model " : "dataset ") + found->id;
  };
  EXPECT_EQ(parsed("models--org--name"), "model org/name");
  EXPECT_EQ(parsed("models--gpt2"), "model gpt2");
  EXPECT_EQ(parsed("datasets--org--texts"), "dataset org/texts");
  for (const auto* name :
       {"spaces--org--name", ".locks", "models--", "models--a--b--c", "models--a."})
    EXPECT_EQ(parsed(name), "none") << name;
}

TEST_F(HubCache, OnlyFilesAndFoldersOfThisKindCount) {
  make_model();
  for (const auto* name : {"models--a--b", "datasets--org--nmae", "models--.."})
    std::filesystem::create_directories(folder_.file(name));
  EXPECT_THAT(refusal("zzzzzzzzzz"), testing::Not(HasSubstr("the cache holds")));
  EXPECT_TRUE(cached_refs(folder_.file("models--a--b")).empty());
  EXPECT_THAT(refusal(folder_.file("absent.gguf")), HasSubstr("the file does not exist"));
  set("HF_HUB_CACHE", "~");
  set("HOME", "/home/someone");
  EXPECT_EQ(hub_cache_folder(), "/home/someone/");
  for (const auto* id : {"-org/name", "org-/name", "org./name", "org/na\x80me", "a..b"})
    EXPECT_FALSE(is_repository_id(id)) << id;
  EXPECT_FALSE(is_valid_revision(std::string("a\0b", 3)));
  EXPECT_FALSE(is_commit_hash(std::string(39, 'a')));
}

}  // namespace
}  // namespace qkscope
