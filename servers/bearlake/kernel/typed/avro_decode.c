/* Avro values to typed columns. Contract: avro_decode.py. */
#include "typed/avro_reader.h"

KERNEL_FUNCTION(kernel_decode_avro)
{
    Tree tree;
    if (check_arguments("decode_avro", count, 9, 9) < 0 || tree_open(&tree, arguments[0]) < 0)
        return NULL;
    PyObject *result = decode_values(module, arguments + 1, &tree, decode_node, put_avro_node);
    tree_close(&tree);
    return result;
}
