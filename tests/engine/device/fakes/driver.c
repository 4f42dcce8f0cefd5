/* An NVIDIA driver with FAKE_GPUS GPUs of compute capability FAKE_MAJOR.0, as far as
 * cuda_loader.cpp asks it. */
int cuInit(unsigned flags) {
  (void)flags;
  return FAKE_GPUS == 0 ? 100 : 0;
}

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = FAKE_GPUS;
  return 0;
}

int cuDeviceGet(int* device, int number) {
  *device = number;
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? FAKE_MAJOR : 0;
  return 0;
}

int cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "a fake error";
  return 0;
}
