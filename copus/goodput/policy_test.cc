#include "copus/goodput/configuration.h"
