#include "capture/stats_run/stats_folder.h"

#include "base/core/error.h"
#include "capture/format/layout.h"
#include "capture/format/stored_run.h"
#include "capture/stats_format/stats_file.h"

namespace qkscope {
namespace {

constexpr std::int64_t kRowGroup = 4096;

constexpr const char* kFiles[] = {stats_layout::kSumsFile,      stats_layout::kChannelsFile,
                                  stats_layout::kAttentionFile, stats_layout::kDocumentsFile,
                                  stats_layout::kDistanceFile,  stats_layout::kRetrievalFile,
                                  layout::kExamplesFile,        layout::kCardFile};
constexpr const char* kFolders[] = {stats_layout::kColumnsFolder};

}  // namespace

const RunKind kStatisticsRun = {
    .name = StoredRun::kStatistics,
    .noun = "statistics",
    .command = "stats",
    .unit = "documents",
    .state_file = stats_layout::kStateFile,
    .files = kFiles,
    .folders = kFolders,
    .no_configuration =
        "{state_file}: says nothing about the run that made it; replace it with --overwrite",
    .other_run =
        "{root}: holds statistics of another run: {difference}; choose another "
        "output.data_root, or replace them with --overwrite",
};

void refuse_capture(const std::string& folder) {
  if (const DataRoot root(folder); root.finished())
    bad_input(
        "{}: holds a capture; statistics need a folder of their own: --set output.data_root=DIR",
        root.path());
}

void write_final_statistics(const DataRoot& root, const Statistics& statistics,
                            DocumentSource& documents,
                            const std::function<void(ExamplesWriter&)>& add_examples) {
  root.make_final_folder();
  ExamplesWriter writer(root.final_folder() + "/" + layout::kExamplesFile, kRowGroup);
  add_examples(writer);
  writer.finish();
  write_statistics(root.final_folder(), statistics, documents);
}

}  // namespace qkscope
