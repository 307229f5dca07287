/* Softmax regression on a table: a trainer without Python.
 *
 *   softmax train   --data DIR --output DIR [--lr 0.1] [--decay 0.001] [--epochs 20]
 *   softmax predict --model DIR --inputs DIR --output FILE
 *
 * It reads the dataset's .npy files (table: float32 [n, columns]; target: integers [n]), prints the metrics of every
 * epoch on the validation part, and writes model.bin and metrics.json. Predictions are probabilities, float32 [n, classes].
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    long rows, columns;
    float *values;
} Array;

typedef struct {
    int32_t columns, classes;
    float *mean, *scale, *weights; /* weights: [classes, columns + 1], the last one the bias */
} Model;

static void fail(const char *what, const char *which) {
    fprintf(stderr, "error: %s: %s\n", what, which);
    exit(1);
}

static FILE *open_file(const char *folder, const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name);
    FILE *file = fopen(path, mode);
    if (!file) fail("cannot be opened", path);
    return file;
}

/* Read a .npy file of floats or integers, as numpy writes it. */
static Array read_npy(const char *folder, const char *name) {
    FILE *file = open_file(folder, name, "rb");
    unsigned char start[10];
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6)) fail("is not a .npy file", name);
    int length = start[8] + 256 * start[9];
    char *header = calloc(1, length + 1);
    if (fread(header, 1, length, file) != (size_t)length) fail("is cut off", name);
    char *shape = strstr(header, "'shape': ("), *kind = strstr(header, "'descr': '");
    Array array = {0, 1, NULL};
    if (!shape || !kind || sscanf(shape + 10, "%ld, %ld", &array.rows, &array.columns) < 1) fail("has an odd header", name);
    kind += 11; /* behind the byte order */
    long count = array.rows * array.columns;
    int size = kind[1] - '0';
    unsigned char *bytes = malloc(count * size);
    if (fread(bytes, size, count, file) != (size_t)count) fail("is cut off", name);
    array.values = malloc(count * sizeof(float));
    for (long i = 0; i < count; i++) {
        unsigned char *item = bytes + i * size;
        int64_t whole = 0;
        if (kind[0] == 'f' && size == 4) {
            memcpy(&array.values[i], item, 4);
            continue;
        }
        if (kind[0] == 'f') fail("holds floats of another size than 4 bytes", name);
        memcpy(&whole, item, size); /* little-endian, not negative */
        array.values[i] = (float)whole;
    }
    free(bytes);
    free(header);
    fclose(file);
    return array;
}

static Model new_model(int columns, int classes) {
    Model model = {columns, classes, calloc(columns, sizeof(float)), calloc(columns, sizeof(float)),
                   calloc((size_t)classes * (columns + 1), sizeof(float))};
    return model;
}

/* Write the probabilities of a row to `out`. */
static void apply(const Model *model, const float *row, float *out) {
    float most = -INFINITY, sum = 0;
    for (int k = 0; k < model->classes; k++) {
        const float *weights = model->weights + (size_t)k * (model->columns + 1);
        out[k] = weights[model->columns];
        for (int j = 0; j < model->columns; j++) out[k] += weights[j] * (row[j] - model->mean[j]) * model->scale[j];
        if (out[k] > most) most = out[k];
    }
    for (int k = 0; k < model->classes; k++) sum += out[k] = expf(out[k] - most);
    for (int k = 0; k < model->classes; k++) out[k] /= sum;
}

static void standardize(Model *model, Array table) {
    for (int j = 0; j < model->columns; j++) {
        double sum = 0, squares = 0;
        for (long i = 0; i < table.rows; i++) sum += table.values[i * table.columns + j];
        double mean = sum / table.rows;
        for (long i = 0; i < table.rows; i++) squares += pow(table.values[i * table.columns + j] - mean, 2);
        model->mean[j] = mean;
        model->scale[j] = squares > 0 ? 1 / sqrt(squares / table.rows) : 1;
    }
}

/* One step of gradient descent for each row, in an order that follows from the epoch. */
static void learn(Model *model, Array table, Array target, int epoch, float lr, float decay) {
    uint64_t random = 88172645463325252ull + epoch;
    float *share = malloc(model->classes * sizeof(float));
    for (long step = 0; step < table.rows; step++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        long i = random % table.rows;
        const float *row = table.values + i * table.columns;
        apply(model, row, share);
        for (int k = 0; k < model->classes; k++) {
            float error = share[k] - (k == (int)target.values[i]);
            float *weights = model->weights + (size_t)k * (model->columns + 1);
            for (int j = 0; j < model->columns; j++)
                weights[j] -= lr * (error * (row[j] - model->mean[j]) * model->scale[j] + decay * weights[j]);
            weights[model->columns] -= lr * error;
        }
    }
    free(share);
}

static void measure(const Model *model, Array table, Array target, double *accuracy, double *loss) {
    float *share = malloc(model->classes * sizeof(float));
    *accuracy = *loss = 0;
    for (long i = 0; i < table.rows; i++) {
        apply(model, table.values + i * table.columns, share);
        int best = 0, label = (int)target.values[i];
        for (int k = 1; k < model->classes; k++)
            if (share[k] > share[best]) best = k;
        *accuracy += best == label;
        *loss -= log(label < model->classes ? fmax(share[label], 1e-7) : 1e-7);
    }
    *accuracy /= table.rows, *loss /= table.rows;
    free(share);
}

static void train(const char *data, const char *output, float lr, float decay, int epochs) {
    Array table = read_npy(data, "train-table.npy"), target = read_npy(data, "train-target.npy");
    Array new_table = read_npy(data, "validation-table.npy"), new_target = read_npy(data, "validation-target.npy");
    int classes = 0;
    for (long i = 0; i < target.rows; i++)
        if (target.values[i] >= classes) classes = (int)target.values[i] + 1;
    Model model = new_model(table.columns, classes);
    standardize(&model, table);
    double accuracy = 0, loss = 0;
    for (int epoch = 1; epoch <= epochs; epoch++) {
        learn(&model, table, target, epoch, lr / sqrtf(epoch), decay);
        measure(&model, new_table, new_target, &accuracy, &loss);
        printf("accuracy=%.4f loss=%.4f\n", accuracy, loss);
        fflush(stdout);
    }
    FILE *file = open_file(output, "model.bin", "wb");
    fwrite(&model.columns, sizeof(int32_t), 2, file); /* columns and classes */
    fwrite(model.mean, sizeof(float), model.columns, file);
    fwrite(model.scale, sizeof(float), model.columns, file);
    fwrite(model.weights, sizeof(float), (size_t)classes * (model.columns + 1), file);
    if (fclose(file)) fail("cannot be written", "model.bin");
    file = open_file(output, "metrics.json", "w");
    fprintf(file, "{\"accuracy\": %.6f, \"loss\": %.6f, \"epoch\": %d}\n", accuracy, loss, epochs);
    if (fclose(file)) fail("cannot be written", "metrics.json");
}

static void predict(const char *folder, const char *inputs, const char *output) {
    FILE *file = open_file(folder, "model.bin", "rb");
    int32_t sizes[2];
    if (fread(sizes, sizeof(int32_t), 2, file) != 2) fail("is cut off", "model.bin");
    Model model = new_model(sizes[0], sizes[1]);
    size_t count = (size_t)model.classes * (model.columns + 1), columns = model.columns;
    if (fread(model.mean, sizeof(float), columns, file) != columns || fread(model.scale, sizeof(float), columns, file) != columns ||
        fread(model.weights, sizeof(float), count, file) != count)
        fail("is cut off", "model.bin");
    fclose(file);
    Array table = read_npy(inputs, "table.npy");
    if (table.columns != model.columns) fail("has another number of columns than the model", "table.npy");
    char header[119];
    int length = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (%ld, %d), }", table.rows,
                          model.classes);
    file = open_file("", output, "wb");
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file); /* the header is 118 bytes, so that data begin at 128 */
    fprintf(file, "%s%*s\n", header, 117 - length, "");
    float *share = malloc(model.classes * sizeof(float));
    for (long i = 0; i < table.rows; i++) {
        apply(&model, table.values + i * table.columns, share);
        fwrite(share, sizeof(float), model.classes, file);
    }
    if (fclose(file)) fail("cannot be written", output);
}

/* Return the value of `--name value` or `--name=value`. */
static const char *flag(int argc, char **argv, const char *name, const char *otherwise) {
    size_t length = strlen(name);
    for (int i = 2; i < argc; i++) {
        if (!strncmp(argv[i], name, length) && argv[i][length] == '=') return argv[i] + length + 1;
        if (!strcmp(argv[i], name) && i + 1 < argc) return argv[i + 1];
    }
    if (!otherwise) fail("is missing", name);
    return otherwise;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (!strcmp(verb, "train"))
        train(flag(argc, argv, "--data", NULL), flag(argc, argv, "--output", NULL), atof(flag(argc, argv, "--lr", "0.1")),
              atof(flag(argc, argv, "--decay", "0.001")), atoi(flag(argc, argv, "--epochs", "20")));
    else if (!strcmp(verb, "predict"))
        predict(flag(argc, argv, "--model", NULL), flag(argc, argv, "--inputs", NULL), flag(argc, argv, "--output", NULL));
    else
        fail("say train or predict, not", verb);
    return 0;
}
