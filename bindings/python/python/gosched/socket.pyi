from socket import *
