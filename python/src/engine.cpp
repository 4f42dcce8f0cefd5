// Python bindings for qkscope/experimental/engine.h.
#include "engine.h"

#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "error.h"
#include "hook_runner.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

std::exception_ptr raised;  // first exception of a run; guarded by the GIL

template <typename T>
T field(const nb::dict& dict, const char* name) {
  return nb::cast<T>(dict[name]);
}

Device device_from_name(const std::string& name) {
  if (!name.starts_with("cuda")) return {};
  return {Device::Kind::cuda, name.size() > 5 ? std::stoi(name.substr(5)) : 0};
}

EngineModel engine_model(const nb::dict& dict) {
  EngineModel model;
  auto& c = model.config;
  c.family = field<std::string>(dict, "family");
  c.n_layers = field<std::int64_t>(dict, "n_layers");
  c.n_heads = field<std::int64_t>(dict, "n_heads");
  c.n_kv_heads = field<std::int64_t>(dict, "n_key_heads");
  c.d_head = field<std::int64_t>(dict, "d_head");
  c.d_model = field<std::int64_t>(dict, "d_model");
  c.d_mlp = field<std::int64_t>(dict, "d_mlp");
  c.vocab_size = c.embedding_rows = field<std::int64_t>(dict, "d_vocab");
  c.max_positions = field<std::int64_t>(dict, "n_ctx");
  c.attention_scale = 1.0;
  c.attention_softcap = field<double>(dict, "softcap");
  if (field<bool>(dict, "sinks")) c.names.sinks = "sinks";
  for (const nb::handle one : field<nb::list>(dict, "layers")) {
    const auto layer = nb::cast<nb::dict>(one);
    LayerConfig settings;
    settings.cross_attention = !field<bool>(layer, "attention");
    settings.window = field<std::int64_t>(layer, "window");
    settings.score_scale = field<double>(layer, "scale");
    settings.rope = -1;  // EngineModel::ropes describes RoPE
    c.layers.push_back(settings);
    model.ropes.push_back({field<std::string>(layer, "rope"),
                           field<std::vector<float>>(layer, "inv_freq"),
                           field<std::int64_t>(layer, "rope_dim")});
  }
  model.d_value = field<std::int64_t>(dict, "d_value");
  model.engine = field<std::string>(dict, "engine");
  model.identity = field<std::string>(dict, "identity");
  model.device = device_from_name(field<std::string>(dict, "device"));
  const auto dtype = field<std::string>(dict, "dtype");
  model.dtype = dtype == "float16" ? DType::f16 : dtype == "bfloat16" ? DType::bf16 : DType::f32;
  model.concurrent_runs = field<bool>(dict, "concurrent_runs");
  return model;
}

using Indices = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>;
using Ids = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>>;
using Vectors = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu, nb::c_contig>;
using FlatVectors = nb::ndarray<const float, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Dims = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // rows, heads, width
using TensorPart = std::tuple<std::int64_t, std::string, Dims>;     // layer, kind, shape

Indices view_of_indices(std::span<const std::int64_t> values) {
  return Indices(values.data(), {values.size()}, nb::handle());
}

// One forward pass that the engine has to run. Valid only during PythonEngine::run().
class PassRequest {
 public:
  PassRequest(const ModelConfig& model, const Batch& batch, Observer& observer)
      : model_(model), batch_(&batch), observer_(&observer) {}

  void end() {
    batch_ = nullptr;
    observer_ = nullptr;
  }

  // Token ids of the sequences.
  nb::list sequences() const {
    nb::list list;
    for (const auto& sequence : batch().sequences)
      list.append(Ids(batch().ids.data() + sequence.begin,
                      {static_cast<std::size_t>(sequence.length)}, nb::handle())
                      .cast(nb::rv_policy::copy));
    return list;
  }

  // Requested tensors as tuples (layer, kind, rows, heads); None selects all rows or all heads.
  nb::list wanted() const {
    nb::list list;
    for (std::int64_t layer = 0; layer < model_.n_layers; ++layer)
      for (const auto& [stage, kind] : kKinds) {
        const HookPoint point{stage, layer};
        if (!observer_->wants(point)) continue;
        const auto selection = observer_->selection(point);
        const auto array = [](std::span<const std::int64_t> values) -> nb::object {
          if (values.empty()) return nb::none();
          return view_of_indices(values).cast(nb::rv_policy::copy);
        };
        list.append(nb::make_tuple(layer, kind, array(selection.rows), array(selection.heads)));
      }
    return list;
  }

  void put(std::int64_t layer, const std::string& kind, const Vectors& vectors) {
    const Dims dims = {static_cast<std::int64_t>(vectors.shape(0)),
                       static_cast<std::int64_t>(vectors.shape(1)),
                       static_cast<std::int64_t>(vectors.shape(2))};
    put_all({{layer, kind, dims}}, {vectors.data(), vectors.size()});
  }

  // Passes several tensors stored back to back in one array. Releases the GIL once for all of them,
  // because the thread that launches the next pass needs it.
  void put_all(const std::vector<TensorPart>& parts, std::span<const float> vectors) {
    batch();
    const nb::gil_scoped_release other_threads_may_run;
    for (const auto& [layer, kind, dims] : parts) {
      const auto& [rows, heads, width] = dims;
      const Shape shape = {rows, heads, width};
      const auto size = static_cast<std::size_t>(shape.count());
      if (size > vectors.size()) reject("vectors: too few for the shapes of the parts");
      observer_->observe(
          {stage_of(kind), layer},
          ConstTensorView(reinterpret_cast<const std::byte*>(vectors.data()), DType::f32, shape));
      vectors = vectors.subspan(size);
    }
  }

 private:
  static constexpr std::pair<Stage, const char*> kKinds[] = {
      {Stage::rot_q, "q"}, {Stage::rot_k, "k"}, {Stage::v, "v"}};

  static Stage stage_of(const std::string& kind) {
    for (const auto& [stage, name] : kKinds)
      if (kind == name) return stage;
    reject("kind: found '{}', expected q, k or v", kind);
  }

  const Batch& batch() const {
    if (batch_ == nullptr) reject("the forward pass of this request has ended");
    return *batch_;
  }

  const ModelConfig& model_;
  const Batch* batch_;
  Observer* observer_;
};

// Runs a forward pass by passing its request to a Python function.
void run_request(const nb::object& call, const ModelConfig& model, const Batch& batch,
                 Observer& observer) {
  const nb::gil_scoped_acquire python;
  try {
    check_signals();
    const auto request = std::make_shared<PassRequest>(model, batch, observer);
    const auto object = nb::cast(request);
    try {
      call(object);
    } catch (...) {
      request->end();
      throw;
    }
    request->end();
  } catch (nb::python_error& error) {
    throw_python_error(error);
  }
}

// A CaptureWriter or StatsWriter. Its methods release the GIL, because threads of the library may
// need the GIL to log.
template <typename Writer>
class PythonWriter {
 public:
  PythonWriter(std::unique_ptr<Writer> writer, std::shared_ptr<PythonEngine> engine)
      : writer_(std::move(writer)), engine_(std::move(engine)) {}
  ~PythonWriter() {
    const nb::gil_scoped_release other_threads_may_run;
    writer_.reset();
  }

  Writer& writer() const { return *writer_; }
  bool wants(const WriterDocument& document) const {
    return run_without_gil([&] { return writer_->wants(document); });
  }
  void add(const WriterDocument& document, const nb::object& run) const {
    run_without_gil([&] {
      writer_->add(document, [&](const Batch& batch, Observer& observer) {
        run_request(run, engine_->model().config, batch, observer);
      });
    });
  }
  void flush() const {
    run_without_gil([&] { writer_->flush(); });
  }
  auto finish() const {
    return run_without_gil([&] { return writer_->finish(); });
  }

 private:
  std::unique_ptr<Writer> writer_;
  std::shared_ptr<PythonEngine> engine_;
};

WriterDocument document_of(std::vector<std::int32_t> ids, const nb::object& id,
                           std::vector<std::string> token_strings) {
  WriterDocument document{.ids = std::move(ids), .token_strings = std::move(token_strings)};
  if (nb::isinstance<nb::int_>(id))
    document.number = nb::cast<std::int64_t>(id);
  else if (!id.is_none())
    document.id = nb::cast<std::string>(id);
  return document;
}

template <typename Writer>
void bind_writer(nb::module_& module, const char* name) {
  using Bound = PythonWriter<Writer>;
  nb::class_<Bound>(module, name)
      .def_prop_ro("is_open", [](const Bound& self) { return self.writer().is_open(); })
      .def_prop_ro("stored", [](const Bound& self) { return self.writer().stored(); })
      .def_prop_ro("documents", [](const Bound& self) { return self.writer().documents(); })
      .def(
          "wants",
          [](const Bound& self, std::vector<std::int32_t> ids, const nb::object& id,
             std::vector<std::string> token_strings) {
            return self.wants(document_of(std::move(ids), id, std::move(token_strings)));
          },
          nb::arg("ids"), nb::arg("id").none(), nb::arg("token_strings"))
      .def(
          "add",
          [](const Bound& self, std::vector<std::int32_t> ids, const nb::object& id,
             std::vector<std::string> token_strings, const nb::object& run) {
            self.add(document_of(std::move(ids), id, std::move(token_strings)), run);
          },
          nb::arg("ids"), nb::arg("id").none(), nb::arg("token_strings"), nb::arg("run"))
      .def("flush", &Bound::flush)
      .def("finish", &Bound::finish);
}

using Pair = std::pair<std::int64_t, std::int64_t>;
using Engine = std::shared_ptr<PythonEngine>;

// Registry of Python functions that create engines, by engine name; guarded by the GIL.
std::map<std::string, nb::object>& factories() {
  static std::map<std::string, nb::object> registered;
  return registered;
}

std::shared_ptr<ExternalEngine> make_engine(const std::string& name, const CaptureConfig& config,
                                            const ComputeOptions& compute) {
  const nb::gil_scoped_acquire python;
  try {
    const auto dtype = compute.dtype.value_or(config.model.dtype);
    return nb::cast<Engine>(factories().at(name)(
        config.model.name, config.model.revision, std::string(dtype_name(dtype)),
        compute.device.empty() ? config.model.device_map : compute.device,
        config.model.config_overrides, config.tokenizer.name));
  } catch (nb::python_error& error) {
    throw_python_error(error);
  }
}

}  // namespace

void throw_python_error(nb::python_error& error) {
  const bool of_input = error.matches(nb::module_::import_("qkscope._engine").attr("InputError"));
  const auto text = nb::cast<std::string>(nb::str(error.value()));
  if (!raised) raised = std::make_exception_ptr(error);
  throw Error(of_input ? ErrorKind::bad_input : ErrorKind::failure, text);
}

void forget_python_error() {
  raised = nullptr;
}

void rethrow_python_error() {
  if (raised) std::rethrow_exception(std::exchange(raised, nullptr));
}

PythonEngine::PythonEngine(nb::object object, const nb::dict& description)
    : object_(std::move(object)), model_(engine_model(description)) {}

PythonEngine::~PythonEngine() {
  const nb::gil_scoped_acquire python;
  object_.reset();
}

void PythonEngine::run(const Batch& batch, Observer& observer) {
  const nb::gil_scoped_acquire python;
  const nb::object call = object_.attr("run");
  run_request(call, model_.config, batch, observer);
}

Tokenizer::Encoding PythonEngine::encode(const std::string& text, std::int64_t max_length) {
  const nb::gil_scoped_acquire python;
  try {
    const auto [ids, truncated] = nb::cast<std::pair<std::vector<std::int32_t>, bool>>(
        object_.attr("encode")(text, max_length));
    return {.ids = ids, .truncated = truncated, .offsets = {}};
  } catch (nb::python_error& error) {
    throw_python_error(error);
  }
}

void bind_engine(nb::module_& module) {
  nb::class_<PassRequest>(module, "PassRequest")
      .def_prop_ro("sequences", &PassRequest::sequences,
                   nb::for_getter(nb::sig("def sequences(self) -> list[typing.Any]")))
      .def_prop_ro("wanted", &PassRequest::wanted,
                   nb::for_getter(nb::sig(
                       "def wanted(self) -> list[tuple[int, str, typing.Any, typing.Any]]")))
      .def("put", &PassRequest::put, nb::arg("layer"), nb::arg("kind"), nb::arg("vectors"))
      .def(
          "put_all",
          [](PassRequest& self, const std::vector<TensorPart>& parts, const FlatVectors& vectors) {
            self.put_all(parts, {vectors.data(), vectors.size()});
          },
          nb::arg("parts"), nb::arg("vectors"));
  nb::class_<PythonEngine>(module, "ExternalEngine")
      .def(nb::init<nb::object, const nb::dict&>(), nb::arg("object"), nb::arg("description"),
           nb::sig(
               "def __init__(self, object: object, description: dict[str, typing.Any]) -> None"));
  bind_writer<CaptureWriter>(module, "CaptureWriter");
  bind_writer<StatsWriter>(module, "StatsWriter");
  module.def(
      "open_capture_writer",
      [](const CaptureConfig& config, const Engine& engine, Pair shard, bool overwrite) {
        return run_without_gil([&] {
          return std::make_shared<PythonWriter<CaptureWriter>>(
              std::make_unique<CaptureWriter>(
                  make_plan(config, {}, engine),
                  CaptureOptions{
                      .shard = {shard.first, shard.second}, .overwrite = overwrite, .quiet = true}),
              engine);
        });
      },
      nb::arg("config"), nb::arg("engine"), nb::arg("shard"), nb::arg("overwrite"));
  module.def(
      "open_stats_writer",
      [](const StatsConfig& config, const Engine& engine, Pair shard, bool overwrite) {
        return run_without_gil([&] {
          return std::make_shared<PythonWriter<StatsWriter>>(
              std::make_unique<StatsWriter>(
                  make_stats_plan(config, {}, engine),
                  StatsOptions{
                      .shard = {shard.first, shard.second}, .overwrite = overwrite, .quiet = true}),
              engine);
        });
      },
      nb::arg("config"), nb::arg("engine"), nb::arg("shard"), nb::arg("overwrite"));
  module.def(
      "register_engine",
      [](const std::string& name, nb::object factory) {
        if (factories().empty())  // the registry of the library outlives the interpreter
          nb::module_::import_("atexit").attr("register")(
              nb::cpp_function([] { factories().clear(); }));
        factories()[name] = std::move(factory);
        register_engine(name, [name](const CaptureConfig& config, const ComputeOptions& compute) {
          return make_engine(name, config, compute);
        });
      },
      nb::arg("name"), nb::arg("factory"));
}

}  // namespace qkscope::python
